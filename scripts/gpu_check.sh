#!/usr/bin/env bash
# Tests, benchmarks and short trainings on one GPU in one command, without a network:
#   scripts/gpu_check.sh --out DIR [--seconds N]
# Takes $PYTHON, else .venv's, else the python on PATH; --help says what comes out.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
if ! command -v "$python" >/dev/null; then
    if [ -n "${PYTHON:-}" ]; then
        echo "gpu_check.sh: PYTHON=$PYTHON does not run; allowed: a Python with torch" >&2
        exit 2
    fi
    python=$(command -v python || command -v python3)
fi
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
exec "$python" -m benchmarks gpu_check "$@"
