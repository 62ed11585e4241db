#!/usr/bin/env bash
# Fine-tunes a pre-trained checkpoint on problems of GLUE, with the paper's learning
# rates, 3 epochs each. Reports the best on the development set.
#   scripts/finetune_glue.sh CHECKPOINT PROBLEM... [options]
# PROBLEM: mnli qnli qqp sst2 mrpc cola rte stsb, or all (the paper's seven columns), from
# data-bin/glue (python -m data_prep glue). Or own, with your folder as
# --data sentence_prediction=DIR. Each run has its own folder; the same command resumes.
# All options: scripts/finetune_glue.sh --help
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$root/.venv/bin/python
[ -x "$python" ] || python=$(command -v python || command -v python3)
# appended, not put first: with the repository installed this changes nothing
export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$root
exec "$python" -m fairseq_transnormer reproduce finetune "$@"
