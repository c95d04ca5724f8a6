#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What must not change a verdict: the order of the files, lines that say nothing, and the form in which lines were kept.

    properties.py BELAY FOLDER [--tries N] [--every N] [--seed N] [CASE...]

Each case of FOLDER (see corpus.py) is altered in ways that keep rank, moment and order of every line, and explained
again: class, strength and origin rank of the first verdict must stay, and its first line of evidence must be the same
text.  Noise and dropped lines are tried --tries times (1; 8 where BELAY_SOAK is set).  The seed is printed with each
failure.
"""
import os
import random
import re
import shutil
import sys
import tempfile

from corpus import cases_of, explain, load

NOISE = [
    b"INFO: checkpoint shard 3 of 8 uploaded",
    b"2024 warm cache entries",
    b"[data] prefetch queue depth 12",
    b"UserWarning: the given buffer is not writable",
    b"metrics flushed to disk in 0.02 s",
    "café naïve 数据加载完成".encode("utf-8"),
    b"\xe9\xff latin-1 noise",
    b"",
]
RANK = re.compile(rb"^(\x1b\[[0-9;]*m)*\[(rank|default)(\d+)\]:")


class Logs:
    """The files of one case, as lists of lines without their ends."""

    def __init__(self, files):
        self.names = [os.path.basename(path) for path in files]
        self.lines = []
        self.ends = []
        for path in files:
            with open(path, "rb") as file:
                whole = file.read()
            self.ends.append(whole.endswith(b"\n"))
            self.lines.append((whole[:-1] if whole.endswith(b"\n") else whole).split(b"\n"))

    def write(self, folder, lines, end=b"\n"):
        paths = []
        for name, ended, content in zip(self.names, self.ends, lines):
            paths.append(os.path.join(folder, name))
            with open(paths[-1], "wb") as file:
                file.write(end.join(content) + (end if ended else b""))
        return paths


def summary(document):
    """Class, strength, rank and the text of the first line of evidence."""
    if not document["verdicts"]:
        return ("healthy",)
    first = document["verdicts"][0]
    return (first["class"], first["strength"], first["origin_rank"], first["evidence"][0]["text"] if first["evidence"] else "")


def bare(line):
    """The line as a carriage return at its end leaves it."""
    return line[:-1] if line.endswith(b"\r") else line


# ---- alterations: each takes the lines of all files and a random generator, and gives new ones ----------------------


def with_noise(lines, dice, kept):
    altered = []
    for content in lines:
        content = list(content)
        for _ in range(max(1, len(content) // 20)):
            content.insert(dice.randrange(len(content) + 1), dice.choice(NOISE))
        altered.append(content)
    return altered


def with_a_line_dropped(lines, dice, kept):
    places = [(f, n) for f, content in enumerate(lines) for n in range(len(content)) if (f, n + 1) not in kept]
    if not places:
        return None
    f, n = dice.choice(places)
    altered = [list(content) for content in lines]
    del altered[f][n]
    return altered


def with_crlf(lines, dice, kept):
    return [[bare(line) + b"\r" for line in content] for content in lines]


def with_lf(lines, dice, kept):
    return [[bare(line) for line in content] for content in lines]


def with_colours(lines, dice, kept):
    return [[b"\x1b[%dm" % dice.choice([31, 32, 33, 36]) + line + b"\x1b[0m" if line else line for line in content]
            for content in lines]


def with_other_rank_labels(lines, dice, kept):
    other = {b"rank": b"default", b"default": b"rank"}

    def relabel(match):
        return (match.group(1) or b"") + b"[" + other[match.group(2)] + match.group(3) + b"]:"
    return [[RANK.sub(relabel, line) for line in content] for content in lines]


MPI = re.compile(rb"^\[\d+,(\d+)\]<std(?:out|err)>: ?")
SRUN = re.compile(rb"^(\d+): ")


def with_labels_of_mpi(lines, dice, kept):
    return [[RANK.sub(rb"[1,\3]<stdout>:", line) for line in content] for content in lines]


def with_labels_of_torch(lines, dice, kept):
    """The labels of mpirun, and of srun where a file has them throughout, as torchrun would write them."""
    altered = []
    for content in lines:
        numbered = sum(1 for line in content if SRUN.match(line))
        content = [MPI.sub(rb"[rank\1]: ", line) for line in content]
        if numbered * 10 > len(content) * 9:
            content = [SRUN.sub(rb"[rank\1]: ", line) for line in content]
        altered.append(content)
    return altered


ISO = re.compile(rb"^(\[?)(\d{4})-(\d\d)-(\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d+))?(?![:\d])")
DMESG = re.compile(rb"^\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (\w{3}) +(\d+) (\d\d:\d\d:\d\d) (\d{4})\] ")
MONTHS = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


def with_stamps(between_date_and_time, dash, point):
    def stamp(match):
        fraction = point + match.group(6) if match.group(6) else b""
        return (match.group(1) + dash.join(match.group(2, 3, 4)) + between_date_and_time + match.group(5) + fraction)
    return lambda lines, dice, kept: [[ISO.sub(stamp, line) for line in content] for content in lines]


def with_iso_kernel_stamps(lines, dice, kept):
    def stamp(match):
        month = MONTHS.index(match.group(1)) + 1
        return b"%s-%02d-%02dT%s " % (match.group(4), month, int(match.group(2)), match.group(3))
    return [[DMESG.sub(stamp, line) for line in content] for content in lines]


with_stamps_t = with_stamps(b"T", b"-", b".")
with_stamps_comma = with_stamps(b" ", b"-", b",")
with_stamps_slash = with_stamps(b" ", b"/", b".")
for name in ("with_stamps_t", "with_stamps_comma", "with_stamps_slash"):
    globals()[name].__name__ = name

ALTERATIONS = [with_noise, with_a_line_dropped, with_crlf, with_lf, with_colours, with_other_rank_labels,
               with_labels_of_mpi, with_labels_of_torch, with_stamps_t, with_stamps_comma, with_stamps_slash,
               with_iso_kernel_stamps]


def needed_lines(document, logs, label):
    """Lines that the label or the verdict names, and those around a report of several lines."""
    kept = set()
    places = [(line["file"], line["line"]) for line in label["evidence"] + label["secondary"] + label.get("needed", [])]
    for verdict in document["verdicts"][:1]:
        places += [(os.path.basename(line["file"]), line["line"]) for line in verdict["evidence"] + verdict["stands_on"]]
    for name, number in places:
        if name in logs.names:
            kept.add((logs.names.index(name), number))
    return kept


def check(belay, folder, name, tries, seed):
    label, files = load(os.path.join(folder, name))
    logs, document = Logs(files), explain(belay, files)
    before, kept, failures = summary(document), needed_lines(document, logs, label), []
    work = tempfile.mkdtemp(prefix="belay-properties-")
    try:
        shuffled = list(reversed(files))
        if summary(explain(belay, shuffled)) != before:
            failures.append("the order of the files")
        for alteration in ALTERATIONS:
            for attempt in range(tries if alteration in (with_noise, with_a_line_dropped) else 1):
                dice = random.Random("%s %s %d %d" % (name, alteration.__name__, attempt, seed))
                altered = alteration(logs.lines, dice, kept)
                if altered is None or altered == logs.lines:
                    continue
                after = summary(explain(belay, logs.write(work, altered)))
                if after != before:
                    failures.append("%s, seed %d, attempt %d: %s became %s" %
                                    (alteration.__name__, seed, attempt, before, after))
    finally:
        shutil.rmtree(work)
    return failures


def main(words):
    options = {"--tries": 8 if os.environ.get("BELAY_SOAK") else 1, "--every": 1, "--seed": 1}
    for option in options:
        if option in words:
            at = words.index(option)
            options[option] = int(words[at + 1])
            del words[at:at + 2]
    belay, folder = words[:2]
    names = words[2:] or cases_of(folder)[::options["--every"]]
    n_failures = 0
    for name in names:
        for failure in check(belay, folder, name, options["--tries"], options["--seed"]):
            print("%s: %s" % (name, failure))
            n_failures += 1
    print("%d cases, %d failures" % (len(names), n_failures))
    return 1 if n_failures or not names else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
