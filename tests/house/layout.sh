#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every C file looks as the committed .clang-format lays it out (`make format` does it).
set -euo pipefail
cd "${1:-.}"
git -c safe.directory="*" rev-parse --git-dir >/dev/null 2>&1 || { echo 'skipped: the list of files comes from git, and this is no clone'; exit 77; }
command -v clang-format >/dev/null || { echo 'skipped: clang-format is not installed'; exit 77; }
version=$(clang-format --version | sed -E 's/.*version ([0-9]+).*/\1/')
[ "$version" -eq 14 ] || { echo "skipped: the layout is that of clang-format 14, and this is $version"; exit 77; }
if ! git -c safe.directory="*" ls-files -z '*.c' '*.h' '*.cu' | xargs -0 clang-format --dry-run -Werror; then
    echo 'the files above differ from the committed layout; make format mends them'
    exit 1
fi
echo "$(git -c safe.directory="*" ls-files '*.c' '*.h' '*.cu' | wc -l) files as laid out"
