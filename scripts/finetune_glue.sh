#!/usr/bin/env bash
# Fine-tunes a pre-trained checkpoint on problems of GLUE: the paper's learning rates, 3
# epochs each; writes a table of the best on the development set, all results as JSON, and
# a plot.
#   scripts/finetune_glue.sh CHECKPOINT PROBLEM... [options]
# PROBLEM: mnli qnli qqp sst2 mrpc cola rte stsb, all (the paper's seven columns), or own
# with --data sentence_prediction=DIR, a folder of yours (default: data-bin/glue, by
# python -m data_prep glue). Each run is a folder of its own; the same command resumes.
# All options: scripts/finetune_glue.sh --help
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$root/.venv/bin/python
[ -x "$python" ] || python=$(command -v python || command -v python3)
# appended, not put first: with the repository installed this changes nothing
export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$root
exec "$python" -m fairseq_transnormer reproduce finetune "$@"
