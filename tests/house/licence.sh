#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every file has exactly one SPDX line, near its top, except data and formats that have no comments.
set -euo pipefail
cd "${1:-.}"
git -c safe.directory="*" rev-parse --git-dir >/dev/null 2>&1 || { echo 'skipped: the list of files comes from git, and this is no clone'; exit 77; }
has_no_comments() {
    case $1 in
    LICENSE | *.json | *.jsonl | *.tsv | *.csv | *.npy | *.safetensors | *.txt | *.log | *.expected) [ "${1##*/}" != CMakeLists.txt ] ;;
    tests/triage/corpus*/* | tests/fuzz/seeds/* | */expected/* | */data/*) return 0 ;;
    *) return 1 ;;
    esac
}
n=0
failures=0
while IFS= read -r -d '' path; do
    if has_no_comments "$path" || ! [ -s "$path" ]; then continue; fi
    n=$((n + 1))
    count=$(grep -cE '^(/\*|//|#|<!--)? *SPDX-License-Identifier: Apache-2\.0( \*/| -->)?$' "$path" || true)
    early=$(head -n 3 "$path" | grep -c 'SPDX-License-Identifier: Apache-2\.0' || true)
    [ "$count" -eq 1 ] && [ "$early" -eq 1 ] && continue
    echo "$path: $count SPDX lines, $early of them in the first three lines; should be one"
    failures=$((failures + 1))
done < <(git -c safe.directory="*" ls-files -z)
grep -q 'Apache License' LICENSE || { echo 'LICENSE: the text of the licence is missing'; exit 1; }
echo "$n files, $failures wrong"
[ "$n" -gt 0 ] && [ "$failures" -eq 0 ]
