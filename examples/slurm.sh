#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# UNTESTED: written from Slurm's documentation; no test runs it.
#
# Data-parallel training inside of a Slurm allocation:  sbatch examples/slurm.sh words.tsv run
# Belay sees the allocation and starts its ranks by srun.  RUN must lie on a file system that all nodes share: the ranks'
# logs and how they ended go to RUN/ranks/, and from them Belay tells which rank failed first.
#SBATCH --job-name=belay
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=8
#SBATCH --time=02:00:00
#SBATCH --signal=TERM@120
set -euo pipefail
data=${1:?usage: sbatch slurm.sh DATA RUN}
run=${2:?usage: sbatch slurm.sh DATA RUN}

# srun of a Slurm built with PMIx starts Open MPI ranks that find each other; `srun --mpi=list` shows what there is.
export SLURM_MPI_TYPE=${SLURM_MPI_TYPE:-pmix}
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}

# SIGTERM two minutes before the end of the time (above): all ranks stop cleanly after a save, and a next job goes on.
resume=()
[ -e "$run/last.safetensors" ] && resume=(--resume)
exec belay train "$data" --out "$run" "${resume[@]}" -n "$SLURM_NTASKS"
