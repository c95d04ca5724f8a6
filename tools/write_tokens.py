#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the bytes of a text as a token file in llm.c's format: a vocabulary of 256.

    write_tokens.py TEXT tokens.bin"""
import struct
import sys


def main():
    with open(sys.argv[1], "rb") as file:
        text = file.read()
    with open(sys.argv[2], "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, len(text), *[0] * 253))
        file.write(struct.pack("<%dH" % len(text), *text))


if __name__ == "__main__":
    main()
