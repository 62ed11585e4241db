#!/usr/bin/env bash
# Installs the packages that tests need (scripts/install.sh), lints, checks type hints,
# runs the tests, and trains the rows of the tables for a few updates. At the end it
# prints the time of each part, in minutes and in CPU seconds. It also prints the CPU
# seconds of a fixed computation, so that machines can be compared.
#
# usage: scripts/test.sh [--all] [PYTEST_ARGUMENT...]
#   --all          also run tests marked as slow (see pyproject.toml), and the rows of all
#                  tables; before a release
#   arguments      for pytest; no other tests run after it: scripts/test.sh -k causal
#   NUMPROCESSES   processes that share the tests (default: one more than cores, since
#                  tests of faults wait for time-outs)
set -euo pipefail

case ${1:-} in
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
which=(-m "not slow")
all=()
if [ "${1:-}" = --all ]; then
    which=()
    all=(all)
    shift
fi

# many processes import the package
unset PYTHONDONTWRITEBYTECODE
# they share the cores: their threads would wait for each other
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# nproc counts OpenMP's threads if they are limited
cores=$(env -u OMP_NUM_THREADS nproc)
many=${NUMPROCESSES:-$((cores + 1))}
durations=()
part() { # NAME COMMAND...: run the command and note its duration
    local name=$1 start=$SECONDS begin=$(cpu_seconds)
    shift
    "$@"
    note "$name" $((SECONDS - start)) "$begin"
}
note() { # NAME SECONDS [CPU_SECONDS_AT_THE_START]
    local line
    line=$(printf '%-26s %3d:%02d' "$1" $(($2 / 60)) $(($2 % 60)))
    [ $# -lt 3 ] || line+=$(printf ' %6d CPU s' $(($(cpu_seconds) - $3)))
    durations+=("$line")
}
# of the whole machine: children of fork servers have no parent that counts their time
cpu_seconds() {
    awk '/^cpu / { print int(($2 + $3 + $4) / 100) }' /proc/stat
}

install_and_lint() {
    bash scripts/install.sh
    .venv/bin/ruff check .
    .venv/bin/ruff format --check .
    .venv/bin/mypy
}
tests() {
    # a file's tests stay together, since each process would make its fixtures
    .venv/bin/python -m pytest --numprocesses "${processes:-$many}" --dist loadfile \
        ${which[@]+"${which[@]}"} "$@"
}
# the interpreter must be chosen before Triton is imported, so in a separate process
interpreter() {
    local processes=${NUMPROCESSES:-$cores}
    TRITON_INTERPRET=1 tests tests/ops/interpreter
}
# kernels compiled by the oldest Triton that setup.py allows
oldest_triton() {
    local oldest folder code=0
    oldest=$(sed -n 's/.*"triton>=\([0-9.]*\)".*/\1/p' setup.py)
    folder=$(mktemp -d)
    .venv/bin/python -m pip install -qq --no-deps --target "$folder" "triton==$oldest.*" &&
        PYTHONPATH=$folder tests tests/ops/compilation || code=$?
    rm -r "$folder"
    return "$code"
}
rows() {
    .venv/bin/python -m tests.rows ${all[@]+"${all[@]}"} \
        --gpus 0 --runs-dir "$scratch/runs"
}
# Both in parallel: data and plans of the rows leave cores to the interpreter, which has
# all of them after the rows.
interpreter_and_rows() {
    scratch=$(mktemp -d)
    set -m # a process group of its own, to be ended whole
    (
        part "interpreter" interpreter
        echo "${durations[-1]% *CPU s}" >"$scratch/duration"
    ) >"$scratch/log" 2>&1 &
    interpreted=$!
    set +m
    trap 'kill -- "-$interpreted" 2>/dev/null || true; rm -rf "$scratch"' EXIT
    part "rows of the tables" rows
    if ! wait "$interpreted"; then
        cat "$scratch/log"
        exit 1
    fi
    tail -n 1 "$scratch/log"
    durations+=("$(cat "$scratch/duration"), in parallel with the rows")
}

began=$(cpu_seconds)
part "installation and lint" install_and_lint
part "tests" tests "$@"
if [ $# -eq 0 ] && [ ${#which[@]} -eq 0 ]; then
    part "oldest Triton" oldest_triton
fi
if [ $# -eq 0 ]; then
    interpreter_and_rows
fi
note "all" $SECONDS "$began"
printf '%s\n' "${durations[@]}"
.venv/bin/python -m tests.reference_computation
