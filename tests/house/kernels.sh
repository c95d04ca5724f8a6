#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A kernel is written once: the kernels of the tests compile as C11, C17 and C++17 by each compiler that is here, without
# a warning, and as CUDA C++ where nvcc is.
set -euo pipefail
cd "${1:-.}"
warnings=(-Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion -Wshadow -Werror)
kernels=$(sed -n 's/^BELAY_KERNEL(\([a-z_]*\),.*/\1/p' tests/launch/kernels.h)
[ -n "$kernels" ] || { echo "tests/launch/kernels.h has no kernels"; exit 1; }
text=$(printf '#include "launch/kernels.h"\nextern const belay_kernel *const every_kernel[];\nconst belay_kernel *const every_kernel[] = {\n' &&
    printf '    &%s,\n' $kernels && printf '};\n')
n=0
failures=0
compile() {
    command -v "$1" >/dev/null || return 0
    n=$((n + 1))
    "$@" -Iinclude -Itests -c -o /dev/null - <<<"$text" && return 0
    failures=$((failures + 1))
    echo "the kernels do not compile with: $*"
}
for level in -O0 -O3; do
    for compiler in gcc clang; do
        compile $compiler -std=c11 -x c $level "${warnings[@]}"
        compile $compiler -std=c17 -x c $level "${warnings[@]}"
    done
    for compiler in g++ clang++; do
        compile $compiler -std=c++17 -x c++ $level "${warnings[@]}"
    done
done
compile nvcc -std=c++17 -x cu -arch=sm_80 -Werror all-warnings
echo "$(wc -w <<<"$kernels") kernels, $n compilations, $failures failed"
[ "$n" -gt 0 ] && [ "$failures" -eq 0 ]
