#!/usr/bin/env bash
#SBATCH --nodes=2 --ntasks-per-node=1
# A job of two nodes: `sbatch docs/slurm.sh sweep STUDY`, from the project's folder, which nodes share.
set -euo pipefail
export PATH=$PWD/.venv/bin:$PATH
# the address by which this host reaches the others; names need not resolve
address=$(hostname --all-ip-addresses | cut --delimiter=' ' --fields=1)
# others may know the port: who has not the key in runs/.agent_key achieves nothing there
export PACELINE_HEAD=$address:$((20000 + SLURM_JOB_ID % 20000))
srun --kill-on-bad-exit=0 paceline agent &
paceline "$@" cluster=agents cluster.nodes="$SLURM_JOB_NUM_NODES"
wait
