#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every program of the fault gallery on every device, each a process of its own, and prints what it says.  With PAGE
# it also writes the matrix there; a cell with an empty answer, or one that is not as promised, fails.
# usage: gallery.sh PROGRAMS [PAGE]    (the folder where the programs were built)
set -euo pipefail
programs=$1 page=${2:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset BELAY_SIM_SEED BELAY_SIM_DEVICES BELAY_LAUNCH_BLOCKING BELAY_SYNC_DEBUG BELAY_MEMORY

failed=0
for source in "$(dirname "${BASH_SOURCE[0]}")"/../examples/faults/*.c; do
    kind=$(basename "$source" .c)
    [ "$kind" != gallery ] || continue
    for device in cpu sim:1 sim; do
        echo "== $kind $device"
        TMPDIR=$work "$programs/$kind" "$device" 2>&1 </dev/null | tee "$work/said" || { failed=1; echo "!! $kind $device"; }
        sed -n "s|^cell: |$kind \| |p" "$work/said" >>"$work/cells"
    done
done

awk -F ' [|] ' '
    NF != 8 { print "not a cell: " $0; bad = 1 }
    { for (i = 1; i <= 8; i++) if ($i ~ /^ *$/) { print "an empty answer: " $0; bad = 1 } }
    END { print NR " cells, " (bad ? "with empty answers" : "none empty"); exit bad || NR == 0 }' "$work/cells" || failed=1

if [ -n "$page" ]; then
    awk -F ' [|] ' '
    { line[NR] = "| " $3 " | " $4 " | " $5 " | " $6 " | " $7 " | " $8 " |"
      program[NR] = $1; kind[NR] = $2; if (!($2 in seen)) { seen[$2] = 1; n_kinds++ }
      if (!(($2, $3) in injected)) { injected[$2, $3] = 1; n_injections++ }
      for (i = 6; i <= 8; i++) if ($i ~ /^n\/a/) { if (!($i in reason)) order[++n_reasons] = $i; reason[$i]++ } }
    END {
        print "<!-- SPDX-License-Identifier: Apache-2.0 -->\n# The fault matrix\n"
        print "Generated from a run of `examples/faults/` by `make gallery`; change the programs.\n"
        print NR " cells: " n_injections " injections of " n_kinds " kinds, each on the cpu, on the software device `sim:1` while `sim:0` is the current"
        print "one, and on `sim:0` with its streams run by a seed (`sim`). Each stands in the middle of a small training."
        print "\n*Refused*: the call did nothing. *Caught*: found when it had run, and kept from the weights. *Legal*: no fault, and the values are"
        print "right. *Named* are the fields of the report. *Alive*: the steps behind it were applied without a further fault."
        print "*Weights*: they equal, bit for bit, those of the same training without the bad batch. Numbers like F01 are those of"
        print "the injections in the project'"'"'s list of seeds. The words of each report stand in `tests/gallery/expected/`.\n"
        print "Answers that cannot be given:\n\n| answer | how often |\n|---|---|"
        for (i = 1; i <= n_reasons; i++) print "| " order[i] " | " reason[order[i]] " |"
        for (i = 1; i <= NR; i++) {
            if (kind[i] != kind[i - 1])
                print "\n## " toupper(substr(kind[i], 1, 1)) substr(kind[i], 2) "\n\n`examples/faults/" program[i] ".c`\n\n| injection | device | outcome | named | alive | weights |\n|---|---|---|---|---|---|"
            print line[i]
        }
    }' "$work/cells" >"$page"
fi
exit $failed
