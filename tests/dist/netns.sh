#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks on two hosts: two network namespaces with a name each, joined by a veth pair, TCP between them.  They work; with the
# link cut each side names whom it cannot reach, in its status file, and ends by the deadline, the launcher too, and
# nothing is left behind.
# usage: netns.sh BELAY RANK_PROGRAM
set -euo pipefail
skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip 'network namespaces need root'
for tool in ip unshare mpirun; do command -v $tool >/dev/null || skip "there is no $tool"; done
belay=$(realpath "$1") program=$(realpath "$2")
[ -e "$(dirname "$belay")/libbelay_mpi.so" ] || skip 'there is no plug-in for MPI'

id=$$ work=$(mktemp -d)
one=bl${id}a two=bl${id}b
cleanup() {
    for name in $one $two; do
        for pid in $(ip netns pids $name 2>/dev/null); do kill -KILL "$pid" 2>/dev/null || true; done
        ip netns del $name 2>/dev/null || true
    done
    rm -rf "$work"
}
trap cleanup EXIT
ip netns add $one 2>/dev/null || skip 'no network namespace may be made here'
ip netns add $two
ip link add v$one netns $one type veth peer name v$two netns $two 2>/dev/null || skip 'no veth pair may be made here'
n=1
for name in $one $two; do
    ip -n $name addr add 10.77.7.$n/24 dev v$name
    ip -n $name link set lo up
    ip -n $name link set v$name up
    n=$((n + 1))
done
cd "$work"
printf '10.77.7.1 slots=1\n10.77.7.2 slots=1\n' >hosts
# What mpirun starts the daemon of the other host by: its first word is the host.
cat >agent <<EOF
#!/bin/sh
shift
exec ip netns exec $two unshare --uts sh -c 'hostname two; exec sh -c "\$0"' "\$*"
EOF
chmod +x agent
export OMPI_MCA_plm_rsh_agent=$work/agent OMPI_MCA_btl=tcp,self OMPI_MCA_pml=ob1 OMP_NUM_THREADS=1
export OMPI_MCA_btl_tcp_if_include=10.77.7.0/24 OMPI_MCA_oob_tcp_if_include=10.77.7.0/24

on_one() { ip netns exec $one unshare --uts sh -c 'hostname one; exec "$@"' sh "$@"; }
fail() {
    echo "FAILED: $1"
    tail -n 40 "$work"/*.txt "$work"/*/attempt_0/*.status "$work"/*/attempt_0/mpirun.stderr.log 2>/dev/null || true
    exit 1
}
steady() { sed -E 's/[0-9]+\.[0-9]+ s/T s/g; /^$/,$d; /^.rank/d' "$1"; }
expect() { # FILE, what it must hold
    diff -u <(printf '%s\n' "$2") "$1" || fail "$1 says something else"
}
nothing_left() {
    for i in $(seq 100); do
        [ -z "$(ip netns pids $one; ip netns pids $two)" ] && return
        read -rt 0.1 <><(:) || true
    done
    ps -ef >&2
    fail 'processes are left behind'
}

# ---- it works
on_one "$belay" run -n 2 --mpi --hostfile hosts --timeout 60 --out works -- "$program" >works.txt 2>&1 || fail 'two hosts'
sort works.txt >sorted.txt
expect sorted.txt '[rank0]: rank 0 of 2 came through
[rank1]: rank 1 of 2 came through'
grep -h '"host"' works/attempt_0/rank?.status >hosts.txt
expect hosts.txt '  "host": "one",
  "host": "two",'
nothing_left

# ---- the link is cut, in a program of barriers and in the middle of a training
cut() { # FOLDER of the attempt, FILE and WORDS that tell when, COMMAND...
    local attempt=$1 file=$2 words=$3 status=0
    shift 3
    on_one "$@" >cut.txt 2>&1 &
    local launcher=$!
    for i in $(seq 600); do
        grep -qs "$words" "$file" && break
        kill -0 $launcher 2>/dev/null || fail 'it ended before the link was cut'
        read -rt 0.1 <><(:) || true
    done
    ip -n $two link set v$two down
    SECONDS=0
    wait $launcher || status=$?
    [ $status = 5 ] || fail "status $status"
    [ $SECONDS -lt 150 ] || fail "it took $SECONDS s where 15 are the figure"
    python3 - "$attempt" <<'EOF' >names.txt
import json, sys
for rank in 0, 1:
    s = json.load(open(f"{sys.argv[1]}/rank{rank}.status"))
    print(s["rank"], s["host"], s["state"], s["code"], s["culprits"])
EOF
    expect names.txt '0 one failed comm.deadline [1]
1 two failed comm.deadline [0]'
    steady cut.txt | sed -E '/^[^ b]/d; s/rank [01] was the first/rank R was the first/; s/rank [01]: secondary/rank R: secondary/; s/ \(?rank [01] (on [a-z]+ )?(was|is) .*//; s/;$//; s/, step.*//' | grep -A2 '^belay: no rank' >said.txt
    expect said.txt "belay: no rank of 2 failed by itself; rank R was the first to give up: exit status 5
    rank R: secondary: exit status 5
    evidence: ${attempt%/attempt_0}"
    nothing_left
    ip -n $two link set v$two up
}
cut cut/attempt_0 cut/attempt_0/rank0.stdout.log 'under way' \
    "$belay" run -n 2 --mpi --hostfile hosts --timeout 5 --grace 2 --out cut -- "$program" endless
awk 'BEGIN { print "text\tlabel"; for (i = 0; i < 60; i++) print (i % 2 ? "abba" : "cddc") i % 7 "\t" (i % 2 ? "x" : "y") }' >words.tsv
cut run/ranks/start_0/attempt_0 run/ranks/start_0/attempt_0/rank0.stdout.log '^epoch 2/' \
    "$belay" train words.tsv --out run -n 2 --hostfile hosts --timeout 5 --embed 4 --hidden 4 --layers 1 --batch 8 --epochs 1000000
[ -e run/last.safetensors ] || fail 'nobody saved'
echo 'two hosts work; with the link cut both name the other and end, in a training after a save'
