#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs/fault-matrix.md is what the fault gallery says today, and no cell of it is empty.
# usage: matrix.sh PROGRAMS    (the folder where the gallery's programs were built)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! tools/gallery.sh "$1" "$work/fault-matrix.md" >"$work/said"; then
    grep '^!! \|^broken: \|empty answer\|not a cell' "$work/said" || tail -n 20 "$work/said"
    exit 1
fi
diff -u --label 'docs/fault-matrix.md as committed' --label 'as it should be' docs/fault-matrix.md "$work/fault-matrix.md" ||
    { echo 'docs/fault-matrix.md is stale; make gallery writes it anew'; exit 1; }
tail -n 1 "$work/said"
