#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a transcript of the command line and compares what came with what it says.
# usage: run.sh BELAY CASE    (with BELAY_UPDATE=1 the transcript is written anew: read the difference before you keep it)
#
#   # words         a remark
#   & COMMAND # why the case is skipped, by name, when the command fails
#   % COMMAND       preparation: must succeed
#   $ COMMAND       the thing tested, with what must come of it:
#   1| LINE         on stdout
#   2| LINE         on stderr
#   ? STATUS        exit status, left out when 0
#
# Commands run in bash, all in one empty folder, with `belay` on PATH.  Figures that differ from machine to machine are
# replaced before the comparison: rates, times, numbers with four decimals, source lines of call sites.
set -euo pipefail
binary=$(realpath "$1")
transcript=$(realpath "$2")
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/here" "$work/tmp"
ln -s "$binary" "$work/bin/belay"
export PATH="$work/bin:$PATH" TMPDIR="$work/tmp" LC_ALL=C TERM=dumb SOURCE=$source_dir
unset NO_COLOR OMP_NUM_THREADS OPENBLAS_NUM_THREADS
cd "$work/here"

filter() {
    sed -E -e '/^    source: /d' -e 's/[0-9]+ samples\/s/N samples\/s/g' -e 's/[0-9]\.[0-9]{4}/N.NNNN/g' -e 's/(called at:? ).*/\1SITE/' -e 's/in use: [0-9]+ bytes, held: [0-9]+/in use: N bytes, held: N/' \
        -e "s|$work/here|HERE|g" "$1" | sed -e "s/^/$2| /" -e 's/ $//'
}

while IFS= read -r line || [ -n "$line" ]; do
    case $line in
    '1|'* | '2|'* | '? '*) continue ;;
    '& '*)
        echo "$line"
        if ! bash -c "${line#& }" >/dev/null 2>&1 </dev/null; then
            echo "skipped: ${line##*# }" >&3
            exit 77
        fi ;;
    '% '*)
        echo "$line"
        if ! bash -c "${line#% }" >"$work/out" 2>"$work/err" </dev/null; then
            echo 'the preparation failed:'; cat "$work/out" "$work/err"
        fi ;;
    '$ '*)
        echo "$line"
        status=0
        bash -c "${line#$ }" >"$work/out" 2>"$work/err" </dev/null || status=$?
        filter "$work/out" 1
        filter "$work/err" 2
        [ "$status" -eq 0 ] || echo "? $status" ;;
    *) echo "$line" ;;
    esac
done 3>&1 <"$transcript" >"$work/actual"

if diff -u --label "expected: $transcript" --label 'what came' "$transcript" "$work/actual"; then
    echo "$(grep -c '^\$ ' "$transcript") commands as written"
elif [ "${BELAY_UPDATE:-}" = 1 ]; then
    cp "$work/actual" "$transcript"
else
    exit 1
fi
