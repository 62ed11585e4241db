#!/usr/bin/env bash
# Installs what the tests need (scripts/install.sh), lints, runs the tests, and trains
# every row of every table for a few updates. Says at the end how long each part took.
#
# usage: scripts/test.sh [--all] [PYTEST_ARGUMENT...]
#   --all          the tests that are marked as slow, too (pyproject.toml says which those
#                  are); before a release
#   arguments      go to pytest, which is all that is run then: scripts/test.sh -k causal
#   NUMPROCESSES   processes that share the tests (default: one a core)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
which=(-m "not slow")
if [ "${1:-}" = --all ]; then
    which=()
    shift
fi

durations=()
part() { # NAME COMMAND...: run the command and note its duration
    local name=$1 start=$SECONDS
    shift
    "$@"
    note "$name" $((SECONDS - start))
}
note() { # NAME SECONDS
    durations+=("$(printf '%-26s %3d:%02d' "$1" $(($2 / 60)) $(($2 % 60)))")
}

lint() {
    .venv/bin/ruff check .
    .venv/bin/ruff format --check .
}
tests() {
    .venv/bin/python -m pytest --numprocesses "${NUMPROCESSES:-auto}" \
        ${which[@]+"${which[@]}"} "$@"
}
# the interpreter has to be chosen before Triton is imported: a process of its own
interpreter() {
    TRITON_INTERPRET=1 tests tests/triton_interpreter
}
smoke() {
    OMP_NUM_THREADS=1 .venv/bin/python -m fairseq_transnormer.reproduce run all \
        --preset smoke --gpus none --jobs "$(nproc)" --fork --runs-dir "$runs"
}

part "installation and lint" eval 'bash scripts/install.sh && lint'
part "tests" tests "$@"
if [ $# -eq 0 ]; then
    runs=$(mktemp -d)
    trap 'rm -rf "$runs"' EXIT
    part "tests with interpreter" interpreter
    part "every row of every table" smoke
fi
note "all" $SECONDS
printf '%s\n' "${durations[@]}"
