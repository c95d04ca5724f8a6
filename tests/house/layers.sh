#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# No #include climbs the stairs.  The last column of the table in docs/map.md is the complete list of rooms that a room
# may include beside itself, public headers and system headers; "any" is any, a dash is none, and
# "(FILE also ROOMS)" gives one file more.  A public header named after a room counts as that room.
set -euo pipefail
cd "${1:-.}"

awk '
function trim(text) { gsub(/^[ `]+|[ `]+$/, "", text); return text }
function fail(message) { print FILENAME ":" FNR ": " message; failures++ }

# A room of src/ is its first folder; a public header named after a room belongs to it, any other to none.
function room_of(path,    parts) {
    split(path, parts, "/")
    if (parts[1] == "src") return parts[2]
    sub(/\.[a-z]*$/, "", parts[3])
    return parts[3] in listed ? parts[3] : ""
}
function allows(room, path, other,    i, n, names, base) {
    if (room == "" || room == other || (room, other) in may || (room, "any") in may) return 1
    base = path; sub(/.*\//, "", base); sub(/\.[a-z]*$/, "", base)
    return (room, base, other) in also
}

FILENAME == "docs/map.md" {
    if ($0 !~ /^\| *`[a-z]+` *\|/) next
    n = split($0, column, "|")
    room = trim(column[2]); list = column[n - 1]
    listed[room] = 1; n_rooms++
    if (match(list, /\(.* also .*\)/)) {
        extra = substr(list, RSTART + 1, RLENGTH - 2); list = substr(list, 1, RSTART - 1)
        split(extra, halves, " also ")
        file = trim(halves[1]); sub(/\.[a-z]*$/, "", file)
        n = split(halves[2], names, " "); for (i = 1; i <= n; i++) also[room, file, trim(names[i])] = 1
    }
    gsub(/[`,]/, " ", list)
    n = split(list, names, " "); for (i = 1; i <= n; i++) if (names[i] != "—") { may[room, names[i]] = 1; named[names[i]] = 1 }
    next
}
FNR == 1 {
    room = room_of(FILENAME); is_public = FILENAME ~ /^include\//
    if (FILENAME ~ /^src\// && !(room in listed)) fail("docs/map.md has no row for the room " room)
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, quoted, "\""); target = quoted[2]
    n = split(target, parts, "/")
    if (is_public) fail("a public header includes only <...>, not \"" target "\"")
    else if (n < 2) fail("\"" target "\" has no room; write \"room/file.h\"")
    else if (!(parts[1] in listed)) fail("\"" target "\" names no room of docs/map.md")
    else if (!allows(room, FILENAME, parts[1])) fail("room " room " may not include room " parts[1] " (\"" target "\")")
    next
}
/^[ \t]*#[ \t]*include[ \t]*<belay\// {
    target = $0; sub(/.*<belay\//, "", target); sub(/>.*/, "", target)
    other = target; sub(/\.[a-z]*$/, "", other)
    if (other in listed && !allows(room, FILENAME, other)) fail("room " room " may not include <belay/" target "> of room " other)
    if (is_public) edge[substr(FILENAME, length("include/belay/") + 1), target] = 1
    next
}

# Public headers must not include each other in a circle: drop those that include none that is left, until none can go.
function find_circle(    pair, ends, left, busy, changed) {
    for (pair in edge) { split(pair, ends, SUBSEP); left[ends[1]] = 1; left[ends[2]] = 1 }
    do {
        changed = 0; delete busy
        for (pair in edge) { split(pair, ends, SUBSEP); if (ends[1] in left && ends[2] in left) busy[ends[1]] = 1 }
        for (pair in left) if (!(pair in busy)) { delete left[pair]; changed = 1 }
    } while (changed)
    for (pair in left) { print "include/belay/" pair ": public headers include each other in a circle"; failures++ }
}
END {
    if (n_rooms < 2) { print "docs/map.md: the table of rooms was not found"; failures++ }
    for (name in named) if (name != "any" && !(name in listed)) { print "docs/map.md: the last column names " name ", which has no row"; failures++ }
    find_circle()
    if (failures) { print failures " includes or rows are wrong"; exit 1 }
    print n_rooms " rooms: no include climbs"
}
' docs/map.md $(find src include -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.def' -o -name '*.inc' | LC_ALL=C sort)
