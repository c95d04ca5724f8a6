#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzzer of a build folder for some seconds, from its seeds; a finding is kept and named.
# usage: tools/fuzz.sh BUILD_FOLDER SECONDS [READER...]
set -euo pipefail
build=$(realpath "$1")
seconds=$2
shift 2
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
n=0
failed=()
for fuzzer in "$build"/fuzz_*; do
    [ -x "$fuzzer" ] || continue
    reader=${fuzzer##*/fuzz_}
    if [ $# -gt 0 ] && [[ " $* " != *" $reader "* ]]; then continue; fi
    n=$((n + 1))
    corpus=$build/corpus/$reader
    findings=$build/findings/$reader
    mkdir -p "$corpus" "$findings"
    seeds=()
    if [ -d "tests/fuzz/seeds/$reader" ]; then seeds=("tests/fuzz/seeds/$reader"); fi
    echo "fuzz: $reader, $seconds s"
    if ! "$fuzzer" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
        -artifact_prefix="$findings/" "$corpus" "${seeds[@]}" >"$build/fuzz_$reader.log" 2>&1; then
        tail -n 60 "$build/fuzz_$reader.log"
        failed+=("$reader (see $findings)")
    fi
    grep -E 'stat::(number_of_executed_units|average_exec_per_sec)' "$build/fuzz_$reader.log" || true
done
[ "$n" -gt 0 ] || { echo "fuzz: no fuzzer in $build"; exit 1; }
for finding in "${failed[@]}"; do echo "fuzz: FINDING in $finding"; done
echo "fuzz: $n readers, ${#failed[@]} with findings"
[ ${#failed[@]} -eq 0 ]
