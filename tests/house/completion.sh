#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Completion for bash, asked as bash asks it: commands, every option of --help, choices, files, and nothing where nothing
# is known.
# usage: completion.sh BUILD_FOLDER BELAY
set -euo pipefail
script=$1/pages/completions/belay
belay=$2
[ -f "$script" ] || { echo "skipped: $script was not built"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
asked=0
# shellcheck disable=SC1090
source "$script"
complete -p belay | grep -q -- '-F _belay' || { echo 'nothing completes belay'; exit 1; }

# The words of a line, of which the last is being typed: COMPREPLY, sorted, in one line.
ask() {
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=(of a call before)
    _belay || true
    printf '%s\n' "${COMPREPLY[@]-}" | LC_ALL=C sort | tr '\n' ' ' | sed 's/^ *//;s/ *$//'
}
expect() { # what is offered, the words
    local wanted=$1 got
    shift
    asked=$((asked + 1))
    got=$(ask "$@")
    if [ "$got" != "$wanted" ]; then
        echo "\"$*\" completes to \"$got\", not to \"$wanted\""
        failures=$((failures + 1))
    fi
}
sorted() { LC_ALL=C sort -u | tr '\n' ' ' | sed 's/ *$//'; }

cd "$work"
mkdir run 'a folder'
touch words.tsv 'two words.tsv'
mapfile -t commands < <("$belay" --help | sed -n 's/^  belay \([a-z]*\).*/\1/p')
expect "$(printf '%s\n' help --help --version "${commands[@]}" | sorted)" belay ''
expect 'train' belay t
expect 'train' belay tr
expect '' belay nothing
expect "$(printf '%s\n' "${commands[@]}" | sorted)" belay help ''
expect '' belay help train ''
expect '' belay nothing ''
for command in "${commands[@]}"; do
    options=$("$belay" "$command" --help | sed -n 's/^  \(--\{0,1\}[a-z][a-z0-9-]*\).*/\1/p' | sorted)
    expect "$options" belay "$command" -
    # Choices stand in --help as a|b|c.
    while read -r option choices; do
        expect "$(tr '|' '\n' <<<"$choices" | sorted)" belay "$command" "$option" ''
    done < <("$belay" "$command" --help | sed -n 's/^  \(--[a-z0-9-]*\) \([a-z0-9]*|[a-z0-9|]*\).*/\1 \2/p')
done
files=$(printf '%s\n' run 'a folder' words.tsv 'two words.tsv' | sorted)
expect 'lstm' belay train words.tsv --model ls
expect 'lstm mean' belay train words.tsv --model =
expect 'mean' belay train words.tsv --model = me
expect '--schedule --seed --seq --skip-batch --sync-debug' belay train --s
expect '--amp' belay train --am
expect 'bf16 f16 off' belay train --amp ''
expect '' belay train --lr ''
expect '' belay train --lr = ''
expect "$files" belay train ''
expect 'words.tsv' belay train --lr 0.1 --resume w
expect 'two words.tsv' belay train --valid tw
expect 'run' belay train words.tsv --out = r
expect '' belay train words.tsv ''
expect "$files" belay eval run ''
expect '' belay eval run words.tsv ''
expect '' belay predict run ''
expect "$files" belay explain words.tsv run words.tsv ''
expect '' belay bench ''
expect '--json' belay info --j
grep -qw words.tsv <<<"$(ask belay run w)" || { echo 'a program of this folder is not offered to belay run'; failures=$((failures + 1)); }
grep -qw bash <<<"$(ask belay run -n 2 -- bas)" || { echo 'a program on PATH is not offered to belay run'; failures=$((failures + 1)); }
# What stands behind the program is the program's.
expect "$files" belay run -n 2 cat ''
expect '' belay run cat --o
expect 'words.tsv' belay run --grace = 3 -- cat w
echo "$asked inputs, $failures wrong"
[ "$failures" -eq 0 ]
