#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The manual pages say what the rows of the commands say, and are read by groff and mandoc without a warning.
# usage: manual.sh BUILD_FOLDER BELAY
set -euo pipefail
export LC_ALL=C MANWIDTH=100 GROFF_NO_SGR=1
pages=$1/pages/man1
belay=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
complain() {
    echo "$*"
    failures=$((failures + 1))
}
[ -d "$pages" ] || { echo "skipped: $pages was not built"; exit 77; }

render() { groff -man -Tascii -P-c -ww -rLL=400n -rHY=0 "$1" 2>>"$work/warnings" | sed 's/.\x08//g'; }
squeeze() { tr -s ' \n' ' '; }

readers=''
for reader in groff man mandoc; do
    command -v $reader >/dev/null && readers+=" $reader"
done
case $readers in
*groff*) ;;
*) echo 'skipped: no groff to read the pages with'; exit 77 ;;
esac
: >"$work/warnings"

mapfile -t commands < <("$belay" --help | sed -n 's/^  belay \([a-z]*\).*/\1/p')
[ ${#commands[@]} -gt 3 ] || complain 'belay --help lists no commands'
for page in "$pages"/*.1; do
    name=${page##*/} name=${name%.1}
    [[ $name == belay || " ${commands[*]} " == *" ${name#belay-} "* ]] || complain "$page is the page of no command"
    case $readers in *' man'*) man --warnings=w -l "$page" >/dev/null 2>>"$work/warnings" ;; esac
    # What has no date is the same in every build.
    case $readers in *mandoc*) mandoc -Tlint -W warning "$page" | grep -v 'missing date' >>"$work/warnings" || true ;; esac
    # A hyphen that would not be one after copying, a line that roff takes for a request.
    grep -nE '[a-z]--[a-z]|[^\]--|^\.[a-z]{3}' "$page" && complain "$page: a text that is not spelled for roff"
done

n_options=0
for command in "${commands[@]}"; do
    page=$pages/belay-$command.1
    [ -f "$page" ] || { complain "$command has no page"; continue; }
    render "$page" >"$work/page"
    "$belay" "$command" --help >"$work/help"
    squeeze <"$work/page" >"$work/page.words"
    # Each option with what stands for its value, alone on its line.
    sed -n 's/^  \(--\{0,1\}[a-z][a-z0-9-]*\( [^ ]\{1,\}\)\{0,1\}\)\(  .*\)\{0,1\}$/\1/p' "$work/help" >"$work/options"
    while IFS= read -r option; do
        n_options=$((n_options + 1))
        grep -qE "^ +${option//|/\\|}( |$)" "$work/page" || complain "$page lacks $option"
    done <"$work/options"
    n_page=$(grep -c '^\.TP$' "$page")
    n_exits=$(sed -n '/^\.SH EXIT/,/^\.SH EX[A]/p' "$page" | grep -c '^\.TP$')
    [ $((n_page - n_exits)) -eq "$(wc -l <"$work/options")" ] || complain "$page has options that --help has not"
    # Each help text, unwrapped, without its default.
    awk 'function flush() { if (text != "") print text; text = "" }
         /^  -/ { flush(); text = length($0) > 34 ? substr($0, 35) : ""; next }
         /^ {34}/ { text = text (text == "" ? "" : " ") substr($0, 35); next }
         { flush() } END { flush() }' "$work/help" | sed 's/ \[[^]]*\]$//' | grep -v '^Print this' >"$work/texts"
    while IFS= read -r text; do
        text=$(squeeze <<<"$text")
        grep -qF -- "${text% }" "$work/page.words" || complain "$page lacks: $text"
    done <"$work/texts"
    # The examples, letter by letter.
    sed -n '/^example$/,$p' "$work/help" | sed '1d;s/^ *//' | while IFS= read -r line; do
        sed 's/^ *//' "$work/page" | grep -qxF -- "$line" || echo "$line"
    done >"$work/lost"
    [ ! -s "$work/lost" ] || complain "$page lacks the example: $(cat "$work/lost")"
    render "$pages/belay.1" | grep -q "^ *belay $command" || complain "belay.1 lacks $command"
done
[ ! -s "$work/warnings" ] || complain "warnings: $(cat "$work/warnings")"
echo "${#commands[@]} commands, $n_options options, read by$readers; $failures wrong"
[ "$n_options" -gt 50 ] && [ "$failures" -eq 0 ]
