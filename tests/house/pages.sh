#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The generated pages and headers are those that the rows say today.  `belay_generate FOLDER` writes all of them.
# usage: pages.sh BUILD_FOLDER
set -euo pipefail
generate=$1/belay_generate
[ -x "$generate" ] || { echo 'skipped: this build has no belay_generate'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$generate" "$work"
n=0
failures=0
while IFS= read -r page; do
    n=$((n + 1))
    if ! diff -u --label "$page as committed" --label "$page as it should be" "$page" "$work/$page"; then
        echo "$page is stale; make docs writes it anew"
        failures=$((failures + 1))
    fi
done < <(cd "$work" && find . -type f | sed 's|^\./||' | sort)
echo "$n pages, $failures stale"
[ "$n" -gt 0 ] && [ "$failures" -eq 0 ]
