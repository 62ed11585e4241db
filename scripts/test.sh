#!/usr/bin/env bash
# Installs what the tests need (scripts/install.sh), lints, and runs the tests.
# Arguments go to pytest: scripts/test.sh -k causal
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
