#!/usr/bin/env bash
# Makes a virtual environment (default: .venv in the repository) and installs the
# package with everything that scripts and tests need, at the versions of
# constraints.txt. Does nothing if the environment is up to date.
#
# usage: scripts/install.sh [VENV_DIR]
#   PYTHON   the interpreter to use, Python 3.11 or 3.12 (default: that of VENV_DIR, or
#            python3)
set -euo pipefail

case ${1:-} in
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
esac
if [ $# -gt 1 ] || [[ ${1:-} == -* ]]; then
    echo "install.sh: unknown argument '${*: -1}' (see --help)" >&2
    exit 2
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=${1:-$root/.venv}
python=python3
[ ! -x "$venv/bin/python" ] || python=$venv/bin/python
python=${PYTHON:-$python}

asks='import sys; print("%d.%d" % sys.version_info[:2])'
version=$("$python" -c "$asks") || {
    echo "install.sh: '$python' does not run; set PYTHON to Python 3.11 or 3.12" >&2
    exit 2
}
case $version in
    3.11 | 3.12) ;;
    *)
        echo "install.sh: PYTHON=$python is Python $version; allowed: 3.11, 3.12" \
            "(docs/install.md has the ways for others)" >&2
        exit 2
        ;;
esac

# an interpreter that was named must be that of the venv
if [ -n "${PYTHON:-}" ] && [ -x "$venv/bin/python" ]; then
    there=$("$venv/bin/python" -c "$asks") || there="one that does not run"
    if [ "$there" != "$version" ]; then
        echo "install.sh: PYTHON=$python is Python $version, $venv has $there;" \
            "remove $venv, or give another folder" >&2
        exit 2
    fi
fi

# programs in it begin with the folder that it was made in
made=$(sed -n 's|^command = .* -m venv [^"/]*/|/|p' "$venv/pyvenv.cfg" 2>/dev/null || true)
if [ -n "$made" ] && [ ! "$made" -ef "$venv" ]; then
    echo "install.sh: $venv was made as $made and moved;" \
        "remove $venv, or give another folder" >&2
    exit 2
fi

stamp=$venv/.fairseq_transnormer_installed
wanted=$(cat "$root/setup.py" "$root/constraints.txt" "$0" - <<<"$root" | cksum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    exit 0
fi

step() { echo "install.sh: $* ($SECONDS s)" >&2; }
# pip is silent for minutes; this line of progress ends with the script
(while sleep 5 &>/dev/null && kill -0 $$ 2>/dev/null; do step "still at it"; done) &
trap 'kill $! 2>/dev/null || true' EXIT

step "virtual environment $venv"
"$python" -m venv "$venv"
rm -f "$stamp" # until all is installed
pip=("$venv/bin/python" -m pip install -qq --disable-pip-version-check)
"${pip[@]}" --constraint "$root/constraints.txt" setuptools wheel
step "torch, by far the largest package"
# torch first and by its exact version, so that later packages ask for no other build.
"${pip[@]}" "torch==$(sed -n 's/^torch==//p' "$root/constraints.txt")"
step "fairseq, transformers and what else is needed"
"${pip[@]}" --constraint "$root/constraints.txt" --no-build-isolation \
    --editable "$root[all,triton,docs,dev]"
# ve-fairseq asks for torchaudio, which has only builds for CUDA. With a torch for CPUs it
# cannot be loaded, and packages that look for it, such as transformers, fail. fairseq
# itself imports it only for speech.
if ! "$venv/bin/python" -c 'import torchaudio' 2>/dev/null; then
    "$venv/bin/python" -m pip uninstall -qq --yes torchaudio
fi
echo "$wanted" >"$stamp"
echo "install.sh: installed into $venv" >&2
