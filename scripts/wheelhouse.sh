#!/usr/bin/env bash
# Collects the wheels that a machine without a network needs to train with fairseq and
# to run scripts/gpu_check.sh. That machine must have torch, Triton and numpy.
# docs/install.md shows how it installs the wheels. For V100, torch must be a build for
# CUDA 12.6: the default builds have no kernels for it.
#
# usage: scripts/wheelhouse.sh --out DIR [--python 3.12] [--present "NAME ..."] [--peers]
#   --out      folder for the wheels
#   --python   Python of that machine: 3.11 or 3.12 (default: 3.12), Linux x86-64
#   --present  packages that it has already, which are skipped
#   --peers    add other kernels, for comparison with ours
#   PYTHON     whose pip to use (default: python3)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
fail() {
    echo "wheelhouse.sh: $*" >&2
    exit 2
}

out= version=3.12 present= peers=
while [ $# -gt 0 ]; do
    case $1 in
        --peers) peers=yes && shift && continue ;;
        --help | -h) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
        --out | --python | --present) ;;
        *) fail "unknown argument '$1' (see --help)" ;;
    esac
    [ $# -ge 2 ] || fail "$1 needs a value"
    case $1 in
        --out) out=$2 ;;
        --python) version=$2 ;;
        --present) present=$2 ;;
    esac
    shift 2
done
[ -n "$out" ] || fail "--out is missing; allowed: a folder"
case $version in
    3.11 | 3.12) ;;
    *) fail "--python $version; allowed: 3.11, 3.12 (those with wheels of ve-fairseq)" ;;
esac

# packages that `import fairseq` loads; scikit-learn (with SciPy) is for its metrics
fairseq=(ve-fairseq hydra-core omegaconf PyYAML bitarray regex tqdm packaging
    sacrebleu portalocker tabulate colorama lxml
    scikit-learn scipy joblib cloudpickle threadpoolctl narwhals)
# our command lines and trainings; they need newer typing_extensions and filelock than
# torch does
commands=(tyro docstring_parser typeguard typing_extensions filelock)
data=(sentencepiece)
tests=(pytest pytest-xdist execnet pluggy iniconfig Pygments hypothesis sortedcontainers)
# not in constraints.txt: nothing here depends on them
peer_versions=(fla-core==0.6.0 einops==0.8.2 liger-kernel==0.8.5 lightning_attn==0.0.5)

wanted=()
for name in "${fairseq[@]}" "${commands[@]}" "${data[@]}" "${tests[@]}"; do
    [[ " ${present,,} " == *" ${name,,} "* ]] && continue
    pin=$(grep -i "^$name==" "$root/constraints.txt") ||
        fail "constraints.txt has no version of $name"
    wanted+=("$pin")
done
[ -z "$peers" ] || wanted+=("${peer_versions[@]}")

# pip takes no wheel whose tag is not in the list, not even an older one
platforms=()
for tag in manylinux_2_{28,27,26,24,17,12,5} manylinux{2014,2010,1}; do
    platforms+=(--platform "${tag}_x86_64")
done
pip=("${PYTHON:-python3}" -m pip --disable-pip-version-check -q)
mkdir -p "$out"
# without dependencies: those of ve-fairseq would install another torch
"${pip[@]}" download --no-deps --only-binary=:all: --python-version "$version" \
    --implementation cp "${platforms[@]}" --dest "$out" "${wanted[@]}"
# Hydra's parser has only a source distribution; its wheel is pure Python
antlr4=antlr4-python3-runtime
[[ " ${present,,} " == *" $antlr4 "* ]] ||
    "${pip[@]}" wheel --no-deps --wheel-dir "$out" \
        "$(grep "^$antlr4==" "$root/constraints.txt")"
wheels=("$out"/*.whl)
cat "${wheels[@]}" | wc -c |
    awk -v n="${#wheels[@]}" '{printf "wheelhouse.sh: %d wheels, %.1f MB\n", n, $1 / 1e6}'
