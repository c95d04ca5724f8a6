#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The data set of the demo, from Debian's word lists: which language is this word of?
#
#   FOLDER/train.tsv, FOLDER/valid.tsv     a header line, then text<TAB>label
#
# Of each language PER_LANGUAGE words are drawn over its whole list: lower-case words of 3 to 20 letters, without
# apostrophes or hyphens.  All are shuffled; one tenth is for validation.  A fixed seed: the same lists give the same
# files on every machine, whatever its awk and locale.
set -euo pipefail
export LC_ALL=C

usage() { echo "usage: tools/wordlists.sh FOLDER [PER_LANGUAGE]" >&2; exit 2; }
[ $# -ge 1 ] && [ $# -le 2 ] || usage
folder=$1
per_language=${2:-6000}
dict=${BELAY_DICT:-/usr/share/dict}

# label | word list | Debian package
lists='english|american-english|wamerican
french|french|wfrench
german|ngerman|wngerman
italian|italian|witalian
spanish|spanish|wspanish'

# Prints what has the form of a word here.  UTF-8 is read byte by byte, so that every awk agrees.  Small letters of these
# five languages: a-z, U+00DF (ß) to U+00FF without the division sign, and U+0153 (œ).
words() {
    awk '
        BEGIN { for (i = 1; i < 256; i++) code[sprintf("%c", i)] = i }
        function is_small(lead, tail) {
            if (lead == 195) return tail >= 159 && tail <= 191 && tail != 183
            return lead == 197 && tail == 147
        }
        {
            n = length($0); letters = 0
            for (i = 1; i <= n; i++) {
                byte = code[substr($0, i, 1)]
                if (byte >= 97 && byte <= 122) letters++
                else if (i < n && is_small(byte, code[substr($0, i + 1, 1)])) { letters++; i++ }
                else next
            }
            if (letters >= 3 && letters <= 20) print
        }' "$1"
}

# Shuffles lines by a key that is a function of seed and line number alone: the minimal standard generator of Park and
# Miller (CACM 31, 1988), x -> 16807 x mod 2^31 - 1, exact in doubles; two draws a key.
shuffle() {
    awk -v seed="$1" '
        BEGIN { x = seed % 2147483646 + 1; for (i = 0; i < 16; i++) x = 16807 * x % 2147483647 }
        {
            x = 16807 * x % 2147483647; high = x
            x = 16807 * x % 2147483647
            printf "%010d%010d\t%s\n", high, x, $0
        }' | sort -k1,1 -s -t "$(printf '\t')" | cut -f2-
}

mkdir -p "$folder"
work=$(mktemp -d "$folder/.wordlists.XXXXXX")
trap 'rm -rf "$work"' EXIT

seed=1
: >"$work/all"
while IFS='|' read -r label list package; do
    if ! [ -r "$dict/$list" ]; then
        echo "tools/wordlists.sh: $dict/$list is missing; it comes with the package $package (tools/deps.sh demo)" >&2
        exit 1
    fi
    words "$dict/$list" | sort -u | shuffle "$seed" >"$work/drawn"
    found=$(wc -l <"$work/drawn")
    if [ "$found" -lt "$per_language" ]; then
        echo "tools/wordlists.sh: $dict/$list has only $found words of that form, $per_language are needed" >&2
        exit 1
    fi
    sed "${per_language}q" "$work/drawn" | sed "s/\$/	$label/" >>"$work/all"
    echo "$label: $per_language of $found words"
    seed=$((seed + 1))
done <<<"$lists"

shuffle 99 <"$work/all" >"$work/shuffled"
total=$(wc -l <"$work/shuffled")
held=$((total / 10))
{ printf 'text\tlabel\n'; sed "${held}q" "$work/shuffled"; } >"$work/valid.tsv"
{ printf 'text\tlabel\n'; sed "1,${held}d" "$work/shuffled"; } >"$work/train.tsv"
mv "$work/valid.tsv" "$work/train.tsv" "$folder/"
echo "$folder/train.tsv: $((total - held)) words, $folder/valid.tsv: $held words"
