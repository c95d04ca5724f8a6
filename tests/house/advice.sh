#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What an error says to try is a sentence: it begins with a capital (or a command, or a value) and ends with a full stop,
# a question mark, or a command that stands behind a colon.
set -euo pipefail
cd "${1:-.}"
n=0
failures=0
while IFS= read -r -d '' words; do
    file=${words%%:*} words=${words#*:}
    words=${words#\"} words=${words%"${words##*\"}"} words=${words%\"}
    [ "$words" = '%s' ] && continue
    n=$((n + 1))
    [[ $words =~ ^[A-Z\`%] && ( $words =~ [.?]$ || $words =~ :\ .*[a-z]\ -$ ) ]] && continue
    echo "$file: \"$words\" is no sentence"
    failures=$((failures + 1))
done < <(grep -rzoHP --include='*.c' 'bl_error_advise\(\s*[^,]+,\s*\K(?:"(?:[^"\\]|\\.)*"\s*)+' src)
echo "$n advices, $failures wrong"
[ "$n" -gt 30 ] && [ "$failures" -eq 0 ]
