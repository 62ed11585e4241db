#!/usr/bin/env bash
# Trains a classifier on a task of the Long-Range Arena (configs/lra.yaml), by default on
# one GPU. It makes 50,000 updates of the task's batch, on any number of GPUs that divides
# the batch.
#   scripts/train_lra.sh TASK SYSTEM [options]    of configs/lra and docs/systems.md
#   scripts/train_lra.sh listops t2
#   scripts/train_lra.sh text linformer --gpus 4 --precision bf16 optimization.max_update=1000
# The same command again resumes the run. With another --gpus the batch of each changes,
# and the epoch is divided again. All options: scripts/train_lra.sh --help
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$root/.venv/bin/python
[ -x "$python" ] || python=$(command -v python || command -v python3)
# appended, not put first: with the repository installed this changes nothing
export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$root
chosen=()
if [[ $# -ge 2 && $1 != -* && $2 != -* ]]; then
    chosen=("lra=$1" "model=lra_$2")
    shift 2
elif [[ " $* " != *" --help "* && " $* " != *" -h "* ]]; then
    echo "train_lra.sh: error: TASK and SYSTEM are needed, as in" \
        "scripts/train_lra.sh listops t2; --help lists the options" >&2
    exit 2
fi
exec "$python" -m fairseq_transnormer train lra "${chosen[@]}" "$@"
