#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a program as N ranks by mpirun and looks at how each of them ended; tests/dist/dist.cmake says how to use it."""
import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SHIM = r"""
rank=$OMPI_COMM_WORLD_RANK
"$@" >"$BELAY_RANKS/rank$rank.out" 2>&1 </dev/null &
echo $! >"$BELAY_RANKS/rank$rank.pid.new"
mv "$BELAY_RANKS/rank$rank.pid.new" "$BELAY_RANKS/rank$rank.pid"
wait $!
echo $? >"$BELAY_RANKS/rank$rank.end.new"
mv "$BELAY_RANKS/rank$rank.end.new" "$BELAY_RANKS/rank$rank.end"
"""


def read(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def steady(text):
    text = re.sub(r"\bon " + re.escape(socket.gethostname()) + r"\b", "on HOST", text)
    text = re.sub(r"\bof " + re.escape(socket.gethostname()) + r"\b", "of HOST", text)
    text = re.sub(r"\bOpen MPI v[\d.]+", "Open MPI vN", text)
    return re.sub(r"\b\d+\.\d s\b", "T s", text)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lost", default="")
    parser.add_argument("--status", action="append", default=[])
    parser.add_argument("--expected")
    parser.add_argument("--plugins")
    parser.add_argument("--timeout", type=float, default=240)
    parser.add_argument("n", type=int)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args()


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def environment(options, folder):
    env = dict(os.environ)
    defaults = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_orte_enable_recovery": "1",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
        "OMP_NUM_THREADS": "1",
        "BELAY_SIM_DEVICES": "8",
    }
    for name, value in defaults.items():
        env.setdefault(name, value)
    for name in [name for name, value in env.items() if value == "UNSET"]:
        del env[name]
    if "ASAN_OPTIONS" in env:  # whole stacks, so that what MPI leaks is seen to be its own
        env["ASAN_OPTIONS"] += ":fast_unwind_on_malloc=0"
    env["BELAY_RANKS"] = folder
    env["BELAY_PLUGINS"] = env.get("BELAY_RANKS_PLUGINS", options.plugins)
    env.setdefault("BELAY_STATUS", folder)
    return env


def kill(folder, rank):
    pid = read(f"{folder}/rank{rank}.pid").strip()
    if pid:
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass


def run(options, folder, lost):
    """Waits until all ranks but the lost ones have ended; whoever is left then, or too late, is killed."""
    mpirun = subprocess.Popen(["mpirun", "-n", str(options.n), "sh", "-c", SHIM, "sh", *options.command],
                              env=environment(options, folder), stdin=subprocess.DEVNULL,
                              stdout=open(f"{folder}/mpirun.out", "w"), stderr=subprocess.STDOUT)
    until = time.monotonic() + options.timeout
    awaited = [r for r in range(options.n) if r not in lost]
    while time.monotonic() < until and mpirun.poll() is None:
        if all(os.path.exists(f"{folder}/rank{r}.end") for r in awaited):
            break
        time.sleep(0.02)
    late = [r for r in awaited if not os.path.exists(f"{folder}/rank{r}.end")]
    for rank in range(options.n):
        if not os.path.exists(f"{folder}/rank{rank}.end"):
            kill(folder, rank)
    try:
        mpirun.wait(20)
    except subprocess.TimeoutExpired:
        mpirun.kill()
        mpirun.wait()
    return late


def main():
    options = arguments()
    if shutil.which("mpirun") is None:
        skip("there is no mpirun")
    if not os.path.exists(f"{options.plugins}/libbelay_mpi.so"):
        skip("libbelay_mpi.so was not built")
    lost = [int(r) for r in options.lost.split(",") if r]
    wanted = {r: 0 for r in range(options.n) if r not in lost}
    wanted.update({int(s.split("=")[0]): int(s.split("=")[1]) for s in options.status})
    folder = tempfile.mkdtemp(prefix="belay-ranks-")
    failures = [f"rank {r} did not end in {options.timeout} s" for r in run(options, folder, lost)]
    for rank, status in sorted(wanted.items()):
        end = read(f"{folder}/rank{rank}.end").strip()
        if end != str(status):
            failures.append(f"rank {rank} ended with {end or 'no status'}, not {status}")
    outputs = "".join(f"==== rank {r}\n{read(f'{folder}/rank{r}.out')}" for r in range(options.n))
    if options.expected and (os.path.exists(options.expected) or os.environ.get("BELAY_UPDATE") == "1"):
        if os.environ.get("BELAY_UPDATE") == "1":
            with open(options.expected, "w") as file:
                file.write(steady(outputs))
        elif steady(outputs) != read(options.expected):
            failures.append(f"the output is not that of {options.expected}")
    if failures or os.environ.get("BELAY_RANKS_SHOW"):
        print(outputs + "==== mpirun\n" + read(f"{folder}/mpirun.out"))
    print("\n".join(failures))
    shutil.rmtree(folder, ignore_errors=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
