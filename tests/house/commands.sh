#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The commands of both READMEs run, and print what stands below them; figures may differ from machine to machine in their
# last places, rates and times altogether.
# usage: commands.sh BELAY ROBUST_TRAINING
set -Eeuo pipefail
belay=$1
robust=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'echo "failed while $step"' ERR

step='reading the blocks of commands'
for readme in README.md README.zh-CN.md; do
    # After "    $ belay ..." the lines up to the next empty one; a fault begins with "    belay: ".
    awk -v out="$work/$readme" '
        /^    (\$ belay|belay: )/ { n++; name = out "." n; on = 1 }
        !/^    / { on = 0 }
        on { print substr($0, 5) > name }' "$readme"
done
for part in 1 2 3; do
    cmp "$work/README.md.$part" "$work/README.zh-CN.md.$part"
done
train=$work/README.md.1 predict=$work/README.md.2 fault=$work/README.md.3

step='looking for the targets of make'
# shellcheck disable=SC2016
while read -r target; do
    grep -q "^$target:" Makefile
done < <(grep -hoE '^    make [a-z]+|`make [a-z]+`' README.md README.zh-CN.md | grep -oE '[a-z]+`?$' | tr -d '`' | sort -u)

step='making a bad id'
"$robust" --plant 10007@3 --epochs 1 --out "$work/robust" >"$work/said" 2>&1 || { cat "$work/said"; false; }
lines=$(wc -l <"$fault")
grep -F -A "$((lines - 1))" -m 1 "$(head -n 1 "$fault")" "$work/said" >"$work/got" || { cat "$work/said"; false; }
diff -u --label README.md --label 'what robust_training says' "$fault" "$work/got"

step='explaining a run'
mkdir "$work/logs"
cp "$fault" "$work/logs/rank0.log"
echo 'all is well' >"$work/logs/dmesg.txt"
(cd "$work/logs" && "$belay" explain rank*.log dmesg.txt >"$work/explained") || [ $? -eq 1 ]
grep -q 'index.range' "$work/explained"

step='supervising a program'
command=$(sed -n 's/^    belay run \(.*[^ ]\)  *# .*/\1/p' README.md)
mkdir "$work/bin"
printf '#!/bin/sh\necho trained\n' >"$work/bin/python3"
chmod +x "$work/bin/python3"
# shellcheck disable=SC2086
(cd "$work" && PATH=$work/bin:$PATH "$belay" run $command >"$work/supervised" 2>&1)
[ "$(grep -c trained "$work/supervised")" -ge 4 ]

step='training as the demo does'
if [ ! -f demo/train.tsv ] || [ ! -f demo/valid.tsv ]; then
    echo 'skipped in part: demo/train.tsv is not there; make demo writes it'
    exit 77
fi
words=$(sed -n '1s/^\$ belay train //p' "$train")
[ -n "$words" ]
# shellcheck disable=SC2086
"$belay" train ${words/demo\/run/$work/run} --threads 1 >"$work/said" 2>&1 || { cat "$work/said"; false; }
sed -i '/  left [0-9:]*$/d' "$work/said" # progress between
# Words and order exactly, accuracy and losses near, the rest only as numbers.
plain() { sed "s|$work/run|demo/run|g; s/[0-9.]* samples.s/N samples\/s/; s/epoch [0-9], counted/epoch N, counted/; s/  best\$//; s/[0-9]\.[0-9]\{4\}/F/g"; }
tail -n +3 "$train" | plain >"$work/wanted"
tail -n "$(wc -l <"$work/wanted")" "$work/said" | plain | diff -u "$work/wanted" -
near() { # README's figures, ours, how near
    paste -d ' ' "$1" "$2" | awk -v most="$3" '{ d = $1 - $2; if (d < -most || d > most) { print "README.md says " $1 ", this is " $2; bad = 1 } } END { exit bad }'
}
figures() { grep -oE '[0-9]\.[0-9]{4}'; }
tail -n +3 "$train" | figures >"$work/wanted"
tail -n "$(tail -n +3 "$train" | wc -l)" "$work/said" | figures >"$work/got"
near "$work/wanted" "$work/got" 0.03

step='predicting words'
words=$(sed -n '1s|^\$ belay predict demo/run ||p' "$predict")
# shellcheck disable=SC2086
"$belay" predict "$work/run" $words >"$work/said"
diff -u <(tail -n +2 "$predict" | cut -f 1,3) <(cut -f 1,3 "$work/said")
near <(tail -n +2 "$predict" | cut -f 2) <(cut -f 2 "$work/said") 0.1
echo 'all commands of the READMEs run and print what is said there'
