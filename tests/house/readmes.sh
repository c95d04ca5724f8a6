#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# README.zh-CN.md says what README.md says: the same blocks of commands and code, letter by letter, as many sections, list
# items and rows, the same links and names in backticks; and each leads to the other.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

blocks() { # indented by four after an empty line, or fenced
    awk '/^```/ { fenced = !fenced; print; empty = 0; next }
         fenced { print; next }
         /^    / && (empty || inside) { inside = 1; print; next }
         { inside = 0; empty = ($0 == "") ; if (empty) print "" }' "$1" | cat -s
}
prose() { # without the blocks
    awk '/^```/ { fenced = !fenced; empty = 0; next }
         fenced { next }
         /^    / && (empty || inside) { inside = 1; next }
         /^$/ && inside { next }
         { inside = 0; empty = ($0 == ""); print }' "$1"
}
shape() { grep -oE '^(#+|-|[0-9]\.|\|)'; }
links() { grep -oE '\]\([^)]*\)' | grep -v 'README'; }
names() { tr '\n' ' ' | grep -oE '`[^`]*`' | sort -u; }
compare() { # what, as a function of the prose
    diff -u --label README.md --label README.zh-CN.md <(prose README.md | $2) <(prose README.zh-CN.md | $2) && return
    echo "$1 differ"
    failures=$((failures + 1))
}

diff -u <(blocks README.md) <(blocks README.zh-CN.md) || { echo 'blocks differ'; failures=$((failures + 1)); }
blocks README.md | grep -q '^    make test' || { echo 'README.md has no blocks'; failures=$((failures + 1)); }
compare 'sections, items and rows' shape
compare 'links' links
compare 'names in backticks' names
grep -qF '[中文](README.zh-CN.md)' README.md || { echo 'README.md does not lead to README.zh-CN.md'; failures=$((failures + 1)); }
grep -qF '[English](README.md)' README.zh-CN.md || { echo 'README.zh-CN.md does not lead to README.md'; failures=$((failures + 1)); }
echo "$(blocks README.md | grep -c '^    ') lines of commands; $failures wrong"
[ "$failures" -eq 0 ]
