#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Labelled logs against `belay explain --json`: is the first verdict of each case what an honest reader may conclude?

    corpus.py BELAY FOLDER [--misses FILE] [CASE...]

A case is a folder with logs and label.json.  Its first verdict is right when class, strength, origin rank and one of
the decisive lines agree with the label, and nothing is said that must not be said.  The cases that are not right must
be exactly those listed in the file of --misses (none without it); a miss that is listed and is right now fails too.
"""
import json
import os
import subprocess
import sys

STRENGTHS = ["insufficient", "likely", "settled"]
EVIDENCE_READ = 8


def explain(belay, files, stdin=None):
    run = subprocess.run([belay, "explain", "--json"] + files, stdin=stdin or subprocess.DEVNULL, capture_output=True)
    if run.returncode not in (0, 1):
        raise SystemExit("belay explain ended with %d: %s" % (run.returncode, run.stderr.decode("utf-8", "replace")))
    return json.loads(run.stdout.decode("utf-8"))


def load(folder):
    with open(os.path.join(folder, "label.json"), encoding="utf-8") as file:
        label = json.load(file)
    files = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name != "label.json"]
    return label, files


def cases_of(folder):
    return [name for name in sorted(os.listdir(folder)) if os.path.isfile(os.path.join(folder, name, "label.json"))]


def complaint(label, verdicts):
    """Why the first verdict is not right; "" when it is."""
    wanted = [label["class"]] + label.get("also_ok", [])
    if not verdicts:
        return "" if "healthy" in wanted else "no verdict for %s" % label["class"]
    first = verdicts[0]
    said = STRENGTHS.index(first["strength"])
    allowed = STRENGTHS.index(label["strength"])
    decisive = [(line["file"], line["line"]) for line in label["evidence"]]
    named = [(os.path.basename(line["file"]), line["line"]) for line in first["evidence"][:EVIDENCE_READ]]
    if first["class"] in label["must_not_say"] or first["class"] not in wanted:
        return "says %s for %s" % (first["class"], label["class"])
    if said > allowed or (first["strength"] == "insufficient" and label["strength"] == "settled"):
        return "says %s for %s" % (first["strength"], label["strength"])
    if label["origin_rank"] is not None and first["origin_rank"] != label["origin_rank"]:
        return "origin rank %s for %s" % (first["origin_rank"], label["origin_rank"])
    if decisive and not set(decisive) & set(named):
        return "names %s, none of %s" % (named, decisive)
    return ""


def main(words):
    listed = []
    if "--misses" in words:
        at = words.index("--misses")
        with open(words[at + 1], encoding="utf-8") as file:
            listed = [line.split()[0] for line in file if line.strip() and not line.startswith("#")]
        del words[at:at + 2]
    belay, folder = words[:2]
    names = words[2:] or cases_of(folder)
    if not names:
        raise SystemExit("no cases in %s" % folder)
    wrong = {}
    for name in names:
        label, files = load(os.path.join(folder, name))
        why = complaint(label, explain(belay, files)["verdicts"])
        if why:
            wrong[name] = why
    print("%d of %d right" % (len(names) - len(wrong), len(names)))
    for name, why in wrong.items():
        print("%s %s: %s" % ("known miss" if name in listed else "MISS", name, why))
    mended = [name for name in listed if name in names and name not in wrong]
    for name in mended:
        print("listed as a miss and right: %s" % name)
    return 1 if mended or set(wrong) - set(listed) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
