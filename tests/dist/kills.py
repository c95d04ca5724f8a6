#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks of a training that come to a bad end at moments drawn over the phases of a step: no hang, the right rank is
named, and the run that is gone on with ends in the weights of one that nothing happened to.

usage: kills.py KILLED   (tests/cli/killed.c; with BELAY_SOAK in the environment 104 ends, else one in each phase)"""
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

TIMEOUT, GRACE = 4, 4
# Number of the phase as in dist/group.h, its name, how often a run of any size comes to it at the least.
PHASES = [
    (1, "data", 6), (2, "forward", 6), (3, "backward", 6), (4, "agreement", 6), (5, "reduction", 6),
    (6, "update", 6), (7, "evaluation", 2), (8, "saving", 2),
]
WAYS = [(signal.SIGKILL, "SIGKILL", 137), (signal.SIGSEGV, "SIGSEGV", 139), (signal.SIGSTOP, "was stopped by SIGSTOP", 147),
        (0, "exit status 9", 9)]


def fail(what, *texts):
    print("FAILED:", what)
    for text in texts:
        print(text)
    sys.exit(1)


def train(program, folder, *words, kill=None, n=2, timeout=60):
    env = dict(os.environ, OMP_NUM_THREADS="1", TMPDIR=folder)
    env.pop("BELAY_KILL", None)
    if kill is not None:
        env["BELAY_KILL"] = kill
    started = time.monotonic()
    done = subprocess.run([program, "train", *words, "-n", str(n), "--timeout", str(timeout)], cwd=folder, env=env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=20 * (2 * TIMEOUT + GRACE))
    return done.returncode, done.stdout, time.monotonic() - started


def tensors(path):
    """The tensors of a file, whatever its metadata."""
    with open(path, "rb") as file:
        n, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(n))
        data = file.read()
    header.pop("__metadata__", None)
    header.pop("belay.run.metrics_bytes", None)  # of a table with rates in it
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def settings(out):
    return ["words.tsv", "--out", out, "--embed", "4", "--hidden", "4", "--layers", "1", "--batch", "4", "--accumulate", "2",
            "--epochs", "2", "--threads", "1", "--workers", "1"]


def one(program, folder, draw, number, phase, way, n, undisturbed):
    code, name, times = phase
    number_of_way, words, status = way
    rank, when, delay = draw.randrange(n), draw.randrange(times), draw.choice([0, 0, 100, 300, 1000])
    out = f"run{number}"
    what = f"{number}: rank {rank} of {n}, {words}, {name} #{when}, {delay} us later"
    print(what, flush=True)
    got, text, took = train(program, folder, *settings(out), kill=f"{rank}:{code}:{when}:{delay}:{int(number_of_way)}",
                            n=n, timeout=TIMEOUT)
    if "comes to its end in phase" not in text:
        fail(f"the moment never came ({what})", text)
    line = re.search(r"^belay: rank (\d+) of \d+ (.*)$", text, re.M)
    if line is None or int(line.group(1)) != rank or words not in line.group(2):
        fail(f"another culprit is named ({what})", text)
    if number_of_way != 0 and re.search(r"^    its journal ends at #\d+ \w+.*: \w+", text, re.M) is None:
        fail(f"what it was doing is not told ({what})", text)
    if got != status:
        fail(f"exit status {got} and not {status} ({what})", text)
    if took > 10 * (2 * TIMEOUT + GRACE):
        fail(f"it took {took:.0f} s ({what})", text)
    resume = ["--out", out, "--resume"] if os.path.exists(f"{folder}/{out}/last.safetensors") else None
    if resume is None:
        fail(f"nobody saved ({what})", text, "\n".join(sorted(os.listdir(f"{folder}/{out}"))))
    got, text, _ = train(program, folder, *resume, n=n)
    if got != 0:
        fail(f"it cannot be gone on with ({what})", text)
    mine = tensors(f"{folder}/{out}/last.safetensors")
    if mine != undisturbed[n]:
        others = sorted(name for name in mine.keys() | undisturbed[n].keys() if mine.get(name) != undisturbed[n].get(name))
        fail(f"other weights ({what}): {', '.join(others)}", text)
    shutil.rmtree(f"{folder}/{out}")
    return name


def main():
    program = os.path.realpath(sys.argv[1])
    if shutil.which("mpirun") is None or not os.path.exists(os.environ.get("BELAY_PLUGINS", "") + "/libbelay_mpi.so"):
        print("skipped: no mpirun, or no plug-in for it")
        sys.exit(77)
    seed = int(os.environ.get("BELAY_SEED", "1"))
    draw = random.Random(seed)
    n_each = 13 if os.environ.get("BELAY_SOAK") else 1
    print(f"seed {seed}")
    folder = tempfile.mkdtemp()
    try:
        with open(folder + "/words.tsv", "w") as file:
            file.write("text\tlabel\n")
            for i in range(80):
                file.write(f"{'abba' if i % 2 else 'cddc'}{i % 7}\t{'x' if i % 2 else 'y'}\n")
        undisturbed = {}
        for n in 2, 3:
            got, text, _ = train(program, folder, *settings(f"whole{n}"), n=n)
            if got != 0:
                fail(f"the undisturbed run of {n} ranks", text)
            undisturbed[n] = tensors(f"{folder}/whole{n}/last.safetensors")
        hits, number = {}, 0
        for i in range(n_each):
            for k, phase in enumerate(PHASES):
                name = one(program, folder, draw, number, phase, WAYS[(k + i) % 4], draw.choice([2, 2, 3]), undisturbed)
                hits[name] = hits.get(name, 0) + 1
                number += 1
        print(f"{number} ends survived:", ", ".join(f"{name} {n}" for name, n in hits.items()))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
