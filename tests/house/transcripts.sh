#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The transcripts of docs/triage.md are what the program prints: each block that begins with "$ belay explain" is run from
# the source folder and compared.
set -euo pipefail
belay=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

awk -v out="$work" '
    /^```/ { inside = !inside; if (inside) n++; next }
    inside { print > (out "/" n) }' docs/triage.md

n_run=0
for block in "$work"/*; do
    read -r prompt program command rest <"$block"
    [ "$prompt $program $command" = '$ belay explain' ] || continue
    n_run=$((n_run + 1))
    tail -n +2 "$block" >"$work/wanted"
    # The words are those of our own page.
    $belay explain $rest >"$work/got" || [ $? -eq 1 ]
    if ! diff -u "$work/wanted" "$work/got"; then
        echo "docs/triage.md: the transcript of 'belay explain $rest' differs from what the program prints"
        exit 1
    fi
done
[ $n_run -gt 0 ] || { echo "docs/triage.md holds no transcript of belay explain"; exit 1; }
