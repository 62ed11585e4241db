#!/usr/bin/env bash
# Trains an autoregressive language model on WikiText-103 with the values of the paper's
# Table 13 (configs/alm.yaml), by default TransNormer T2 on 8 GPUs.
#   scripts/train_alm.sh model=alm_t1 --gpus 4 --precision bf16
#   scripts/train_alm.sh --gpus 1 optimization.max_update=1000 common.tensorboard_logdir=runs/log
# The same command again resumes the run. --dry-run prints the whole configuration. All
# options: scripts/train_alm.sh --help
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$root/.venv/bin/python
[ -x "$python" ] || python=$(command -v python || command -v python3)
# appended, not put first: with the repository installed this changes nothing
export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$root
exec "$python" -m fairseq_transnormer train alm "$@"
