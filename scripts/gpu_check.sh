#!/usr/bin/env bash
# Tests and measures on one rented GPU, in stages, without git and a network:
#   scripts/gpu_check.sh --stage first|second|gates|evidence --seconds N --out DIR
# --help describes the stages and their output. Uses the first of $PYTHON, .venv, python
# and python3 that imports torch.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
for python in ${PYTHON:+"$PYTHON"} "$root/.venv/bin/python" python python3; do
    if "$python" -c "import torch" 2>/dev/null; then
        exec "$python" -m benchmarks gpu_check "$@"
    fi
done
case ${1:-} in
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
esac
echo "gpu_check.sh: none of ${PYTHON:+PYTHON=$PYTHON, }.venv, python, python3" \
    "imports torch" >&2
exit 2
