#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How fast `belay explain` reads, beside `wc -l` of the same file: a log with one fault line in a thousand, a log of fault
# lines alone, a small log.  Each is read once before, so that it lies in memory; medians of three, in turn.
# usage: tools/bench_explain.sh BELAY [GIB]      (default 4; the log is made in TMPDIR and removed)
set -euo pipefail
belay=$(realpath "$1")
gib=${2:-4}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

need=$((gib * 1024 * 1024 + 1024 * 1024))
free=$(df --output=avail -k "$work" | tail -n 1)
[ "$free" -gt "$need" ] || { echo "$work has $free KiB free, this needs $need; set TMPDIR or give fewer GIB"; exit 1; }

# 64 MiB of lines: step lines of four kinds, and a fault on each thousandth, or on each.
make_block() {
    awk -v every="$1" 'BEGIN {
        srand(1)
        for (bytes = 0; bytes < 67108864; bytes += length(line) + 1) {
            n++
            kind = int(rand() * 4)
            if (n % every == 0)
                line = sprintf("../aten/src/ATen/native/cuda/Indexing.cu:1146: indexSelectLargeIndex: block: [%d,0,0], thread: [%d,0,0] Assertion `srcIndex < srcSelectDimSize` failed.", rand() * 300, rand() * 128)
            else if (kind == 0)
                line = sprintf("2025-01-22 03:40:%02d step %d | lm loss 2.30%02d | tokens/s/gpu 9131 | lr 1.0e-04", rand() * 60, n, rand() * 100)
            else if (kind == 1)
                line = sprintf("[rank%d]: iter %d loss 1.8%03d grad_norm 0.53 mem 41.2GB", rand() * 8, n, rand() * 1000)
            else if (kind == 2)
                line = sprintf("INFO:trainer:epoch 3 batch %d/9000 loss=0.%04d acc=0.81", n % 9000, rand() * 10000)
            else
                line = sprintf("gpu-b1:13070:13091 [%d] NCCL INFO Channel 00/0 : 0[1a000] -> 1[1b000] [send] via NET/IB/0", rand() * 8)
            print line
        }
    }'
}

seconds_of() { # the median of three
    for _ in 1 2 3; do
        local begin end
        begin=$(date +%s%N)
        "$@" >/dev/null || [ $? -eq 1 ]
        end=$(date +%s%N)
        echo $((end - begin))
    done | sort -n | sed -n 2p
}

report() { # name, file
    local bytes wc_time explain_time
    bytes=$(stat -c %s "$2")
    cat "$2" >/dev/null
    wc_time=$(seconds_of wc -l "$2")
    explain_time=$(seconds_of "$belay" explain "$2")
    awk -v name="$1" -v bytes="$bytes" -v wc="$wc_time" -v own="$explain_time" 'BEGIN {
        printf "%-28s %6.2f GB   wc -l %6.2f GB/s   belay explain %6.3f GB/s, %.3f s   share %.2f\n",
               name, bytes / 1e9, bytes / wc, bytes / own, own / 1e9, wc / own }'
}

grep -m 1 'model name' /proc/cpuinfo || true
make_block 1000 >"$work/block"
for ((i = 0; i < gib * 16; i++)); do cat "$work/block"; done >"$work/large.log"
report "one fault line in a thousand" "$work/large.log"
if command -v /usr/bin/time >/dev/null; then
    /usr/bin/time -f 'memory at most: %M KiB' "$belay" explain "$work/large.log" 2>&1 >/dev/null | tail -n 1 || true
fi
rm "$work/large.log"
make_block 1 >"$work/all.log"
report "fault lines alone" "$work/all.log"
head -n 500 "$work/block" >"$work/small.log"
report "a small log" "$work/small.log"
