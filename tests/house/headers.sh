#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, twice over, as C11, C17 and C++17 without a warning.
set -euo pipefail
cd "${1:-.}"
warnings=(-Wall -Wextra -Wpedantic -Werror -Iinclude -c -o /dev/null)
n=0
failures=0
for path in include/belay/*.h; do
    header=belay/${path##*/}
    text=$(printf '#include <%s>\n#include <%s>\nextern int the_unit_is_not_empty;\n' "$header" "$header")
    for dialect in "gcc -std=c11 -x c" "gcc -std=c17 -x c" "g++ -std=c++17 -x c++"; do
        n=$((n + 1))
        if ! $dialect "${warnings[@]}" - <<<"$text"; then
            echo "<$header> does not compile alone with: $dialect ${warnings[*]}"
            failures=$((failures + 1))
        fi
    done
done
echo "$n compilations, $failures failed"
[ "$n" -gt 0 ] && [ "$failures" -eq 0 ]
