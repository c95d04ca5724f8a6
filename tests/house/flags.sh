#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# No fast-math, neither in a build file, nor in a compile command, nor in a pragma: NaN checks must survive.
# usage: flags.sh BUILD_FOLDER
set -euo pipefail
commands=$1/compile_commands.json
forbidden='-(f?fast-math|Ofast|funsafe-math-optimizations|ffinite-math-only|fassociative-math|freciprocal-math|ffp-contract=(fast|on)|fmad=true)|use_fast_math|optimize *\(.*(fast-math|Ofast)|FP_CONTRACT +ON|float_control'
[ -s "$commands" ] || { echo "$commands: missing, so nothing was proved"; exit 1; }
if grep -rnE -e "$forbidden" CMakeLists.txt CMakePresets.json Makefile cmake tools .ci src include tests/CMakeLists.txt; then
    echo 'the lines above ask for fast-math'
    exit 1
fi
if grep -nE -e "$forbidden" "$commands"; then
    echo "the commands above in $commands ask for fast-math"
    exit 1
fi
# The other way round: every file of ours is compiled without contraction.
if grep '"command":' "$commands" | grep -v -e '-ffp-contract=off'; then
    echo 'the commands above lack -ffp-contract=off'
    exit 1
fi
echo "$(grep -c '"command":' "$commands") compile commands: no fast-math"
