#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job on real input, in demo/: which language is this word of?  `make demo` builds and then runs this.
# usage: tools/demo.sh [OPTION_OF_BELAY_TRAIN...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
belay=${BELAY:-build/release/belay}

show() { printf '\n$ %s\n' "$*"; "$@"; }

tools/wordlists.sh demo
show "$belay" train demo/train.tsv --valid demo/valid.tsv --out demo/run --overwrite --tokens char \
    --embed 32 --hidden 64 --lr 2e-3 --accumulate 1 --epochs 5 "$@"
show "$belay" eval demo/run demo/valid.tsv
show "$belay" predict demo/run heureux knowledge vielleicht giardino corazón
printf '\nThe report of the run, to open in a browser: %s/demo/run/report.html\n' "$PWD"
