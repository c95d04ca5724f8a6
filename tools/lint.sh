#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy (.clang-tidy) and cppcheck over the C files of src/, or over the files that are named.  Any finding fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/release
[ -s "$build/compile_commands.json" ] || cmake --preset release >/dev/null
if [ $# -gt 0 ]; then
    files=("$@")
else
    mapfile -t files < <(git ls-files 'src/*.c')
fi
status=0
echo "clang-tidy: ${#files[@]} files"
# One file a process: clang-tidy 14 takes va_lists of every file but the first for uninitialised.
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet -p "$build" 2> >(grep -v 'warnings generated' >&2) || status=1
echo "cppcheck: ${#files[@]} files"
cppcheck --quiet --error-exitcode=1 -j "$(nproc)" --std=c11 --language=c --enable=warning,performance,portability \
    --inline-suppr --suppressions-list=tools/cppcheck.supp -I include -I src -D__GNUC__ "${files[@]}" || status=1
[ "$status" -eq 0 ] && echo 'no findings'
exit "$status"
