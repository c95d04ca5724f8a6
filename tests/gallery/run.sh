#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program of the fault gallery on a device and compares every word that it says, reports and cells, with a file.
# usage: run.sh PROGRAM DEVICE EXPECTED   (with BELAY_UPDATE=1 the file is written anew: read the difference by eye)
#
# Only what no two runs share is replaced, and only here: addresses, and numbers of processes.  The small build tells
# faults at other fences, so that there the program's own judgement counts: its status.
set -uo pipefail
program=$1 device=$2 expected=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset BELAY_SIM_SEED BELAY_SIM_DEVICES BELAY_LAUNCH_BLOCKING BELAY_SYNC_DEBUG BELAY_MEMORY

status=0
TMPDIR=$work "$program" "$device" >"$work/raw" 2>&1 </dev/null || status=$?
sed -E -e 's/0x[0-9a-f]{6,}/ADDRESS/g' -e 's/process [0-9]+/process PID/g' -e 's/^(    versions: ).*/\1VERSIONS/' "$work/raw" >"$work/said"
if [ "$status" -ne 0 ]; then
    grep -A1 '^cell: .* | NO\|^broken: ' "$work/said" || tail -n 40 "$work/said"
    echo "$(basename "$program") $device: status $status, not all holds that it promises"
    exit 1
fi
if [ "${BELAY_SMALL:-OFF}" != ON ] && ! diff -u --label "expected: $expected" --label 'what came' "$expected" "$work/said"; then
    [ "${BELAY_UPDATE:-}" = 1 ] || exit 1
    cp "$work/said" "$expected"
fi
n=$(grep -c '^cell: ' "$work/said")
echo "$n cells as written"
[ "$n" -gt 0 ]
