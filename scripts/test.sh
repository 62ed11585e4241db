#!/usr/bin/env bash
# Installs what the tests need (scripts/install.sh), lints, and runs the tests.
# Arguments go to pytest: scripts/test.sh -k causal
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
bash scripts/install.sh
.venv/bin/ruff check .
.venv/bin/ruff format --check .
exec .venv/bin/python -m pytest "$@"
