#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The shared library exports all that the public headers declare, and nothing else; the static one has no name that
# could collide with a user's.
# usage: symbols.sh LIBBELAY_SO LIBBELAY_A
set -euo pipefail
shared=$1
static=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

complain() { # file of names, what is wrong with them
    [ -s "$1" ] || return 0
    sed "s|\$|: $2|" "$1"
    failures=$((failures + $(wc -l <"$1")))
}

nm -D --defined-only "$shared" | awk '{ print $NF }' | LC_ALL=C sort -u >"$work/exported"
nm -g --defined-only "$static" 2>/dev/null | awk 'NF == 3 { print $3 }' | LC_ALL=C sort -u >"$work/global"

# A declaration ends at ";"; the ones that carry the visibility attribute are promises.
for path in include/belay/*.h; do echo "#include <belay/${path##*/}>"; done |
    gcc -std=c17 -Iinclude -E -P -x c - | tr '\n' ' ' | tr ';' '\n' |
    sed -n 's/.*visibility("default")))//p' | sed 's/__attribute__((warn_unused_result))//' |
    sed -nE 's/^[^(]*\b(belay_[a-z0-9_]+) *\(.*/\1/p' | LC_ALL=C sort -u >"$work/declared"

grep -v '^belay_' "$work/exported" >"$work/foreign" || true
LC_ALL=C comm -23 "$work/declared" "$work/exported" >"$work/undefined"
LC_ALL=C comm -13 "$work/declared" "$work/exported" | grep '^belay_' >"$work/undeclared" || true
grep -vE '^(belay|bl)_' "$work/global" >"$work/colliding" || true
# A sanitizer, an OpenMP body or a compiler clone may add names of the compiler's own.
sed -i '/^__/d' "$work/colliding"

complain "$work/foreign" "exported by ${shared##*/}, but not named belay_*"
complain "$work/undefined" "declared BELAY_API in include/belay/, but not in ${shared##*/}"
complain "$work/undeclared" "exported by ${shared##*/}, but declared by no public header"
complain "$work/colliding" "a global name in ${static##*/} that starts with neither belay_ nor bl_"
echo "$(wc -l <"$work/exported") exported, $(wc -l <"$work/declared") declared, $(wc -l <"$work/global") global; $failures wrong"
[ -s "$work/exported" ] && [ -s "$work/declared" ] && [ "$failures" -eq 0 ]
