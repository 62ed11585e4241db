#!/usr/bin/env bash
# Builds a wheel of fairseq 0.12.2, upstream's last release on PyPI, for the running
# Python. It applies the patches in scripts/fairseq_patches, which state their reasons.
# The wheel replaces ve-fairseq on Python 3.10 to 3.13 where there is no wheel of that.
# See docs/install.md.
#
# usage: scripts/build_fairseq_wheel.sh [--out DIR]
#   --out    folder for the wheel (default: wheels)
#   PYTHON   the interpreter that the wheel is for (default: python3)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=0.12.2
sha256=34f1b18426bf3844714534162f065ab733e049597476daa35fffb4d06a92b524
fail() {
    echo "build_fairseq_wheel.sh: $*" >&2
    exit 2
}

out=wheels
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=${2:?--out needs a value} && shift 2 ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
        *) fail "unknown argument '$1' (see --help)" ;;
    esac
done
python=${PYTHON:-python3}
found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') ||
    fail "PYTHON=$python does not run; allowed: Python 3.10 to 3.13"
case $found in
    3.10 | 3.11 | 3.12 | 3.13) ;;
    *) fail "PYTHON=$python is Python $found; allowed: 3.10 to 3.13" ;;
esac
for tool in patch cc c++; do
    command -v "$tool" >/dev/null || fail "$tool is not installed; the build needs it"
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# build tools have the tested versions, too; pip splits these variables at spaces
constraints=file://${root// /%20}/constraints.txt
export PIP_CONSTRAINT=$constraints PIP_BUILD_CONSTRAINT=$constraints
export PIP_DISABLE_PIP_VERSION_CHECK=1
# pip compares the checksum before it runs code of the file
echo "fairseq==$version --hash=sha256:$sha256" >"$scratch/requirements.txt"
"$python" -m pip download -q --no-deps --no-binary fairseq --dest "$scratch" \
    --require-hashes --requirement "$scratch/requirements.txt"
tar -xzf "$scratch/fairseq-$version.tar.gz" -C "$scratch"
for change in "$root"/scripts/fairseq_patches/*.patch; do
    patch --quiet --batch --forward --fuzz=0 -p1 -d "$scratch/fairseq-$version" \
        <"$change" || fail "$change does not fit fairseq $version"
done
"$python" -m pip wheel -q --no-deps --wheel-dir "$scratch/wheel" \
    "$scratch/fairseq-$version"
mkdir -p "$out"
mv "$scratch"/wheel/fairseq-*.whl "$out"
echo "build_fairseq_wheel.sh: $(ls "$out"/fairseq-"$version"+*.whl)"
