#!/usr/bin/env bash
# Continues prompts with a trained language model:
#   scripts/generate.sh --path checkpoints/checkpoint_best.pt --prompt "The river"
# All options: scripts/generate.sh --help
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$root/.venv/bin/python
[ -x "$python" ] || python=$(command -v python || command -v python3)
# appended, not put first: with the repository installed this changes nothing
export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$root
exec "$python" -m fairseq_transnormer generate "$@"
