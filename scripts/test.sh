#!/usr/bin/env bash
# Installs what the tests need (scripts/install.sh), lints, runs the tests, and trains
# every row of every table for a few updates.
# Arguments go to pytest, and then the tables are left out: scripts/test.sh -k causal
#   NUMPROCESSES   processes that share the tests (default: one a core)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
bash scripts/install.sh
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/python -m pytest --numprocesses "${NUMPROCESSES:-auto}" "$@"
# the interpreter has to be chosen before Triton is imported: a process of its own
TRITON_INTERPRET=1 .venv/bin/python -m pytest \
    --numprocesses "${NUMPROCESSES:-auto}" tests/triton_interpreter
if [ $# -eq 0 ]; then
    runs=$(mktemp -d)
    trap 'rm -rf "$runs"' EXIT
    OMP_NUM_THREADS=1 .venv/bin/python -m fairseq_transnormer.reproduce run all \
        --preset smoke --gpus none --jobs "$(nproc)" --runs-dir "$runs"
fi
