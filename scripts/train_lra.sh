#!/usr/bin/env bash
# Trains a classifier on a task of the Long-Range Arena; --help says how.
set -euo pipefail

script=$(basename "$0")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
names() { # of the files in a folder of configs/, as "a b c"
    local paths=("$root"/configs/$1*.yaml)
    paths=("${paths[@]##*/${2:-}}")
    echo "${paths[*]%.yaml}"
}

usage() {
    cat <<END
usage: scripts/$script TASK SYSTEM [options] [-- overrides for fairseq-hydra-train]

  TASK      $(names lra/)
  SYSTEM    $(names model/lra_ lra_)

Trains with the values of configs/lra.yaml: 50,000 updates of the task's batch on any
number of GPUs that divides it. The same command again goes on from the last checkpoint.
With other --gpus each takes batches of another size, and the epoch is cut up anew: of that
epoch some sequences come again and others do not.

  --data DIR         folder that data_prep lra has made (default: data-bin/lra/TASK)
  --gpus N           GPUs of this machine; 0 trains on the CPU (default: 1)
  --precision NAME   fp32, fp16 or bf16 (default: fp32)
  --save-dir DIR     folder of the run (default: runs/lra/TASK/ARCHITECTURE)
  --dry-run          print the command only
  --help             this text

Overrides behind -- win, for example
  scripts/$script listops t2 --gpus 0 -- optimization.max_update=1000 common.seed=2
END
}

fail() {
    echo "$script: $*" >&2
    exit 2
}

case ${1:-} in
    --help | -h) usage && exit 0 ;;
esac
[[ $# -ge 2 && $1 != -* && $2 != -* ]] || fail "TASK and SYSTEM are needed; --help lists them"
task=$1 system=$2
shift 2
for pair in "lra/$task" "model/lra_$system"; do
    [ -f "$root/configs/$pair.yaml" ] || fail "there is no configs/$pair.yaml;" \
        "allowed tasks: $(names lra/); systems: $(names model/lra_ lra_)"
done

data=data-bin/lra/$task gpus=1 precision=fp32 save_dir= dry_run=
extra=()
while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) dry_run=yes && shift && continue ;;
        --) shift && extra=("$@") && break ;;
        --data | --gpus | --precision | --save-dir) ;;
        *) fail "unknown argument '$1'; --help lists them (overrides follow --)" ;;
    esac
    [ $# -ge 2 ] || fail "$1 needs a value"
    case $1 in
        --data) data=$2 ;;
        --gpus) gpus=$2 ;;
        --precision) precision=$2 ;;
        --save-dir) save_dir=$2 ;;
    esac
    shift 2
done
[[ $gpus =~ ^(0|[1-9][0-9]{0,5})$ ]] || fail "--gpus $gpus; allowed: 0 (CPU), 1, 2, ..."
[ -f "$root/configs/precision/$precision.yaml" ] ||
    fail "--precision $precision; allowed: $(names precision/)"
[ "$gpus" -gt 0 ] || [ "$precision" != fp16 ] ||
    fail "--precision fp16 needs a GPU; allowed with --gpus 0: fp32, bf16"
[ -f "$data/manifest.json" ] ||
    fail "--data $data has no manifest.json; python -m data_prep lra $task makes it"

processes=$((gpus > 0 ? gpus : 1))
batch=$(sed -n 's/^  batch_size: \([0-9]*\).*/\1/p' "$root/configs/lra/$task.yaml")
[ $((batch % processes)) -eq 0 ] ||
    fail "--gpus $gpus does not divide an update's $batch sequences; allowed: its divisors"
command=(
    fairseq-hydra-train --config-dir "$root/configs" --config-name lra
    "lra=$task" "model=lra_$system" "precision=$precision"
    "task.data=$(realpath "$data")" "common.user_dir=$root/fairseq_transnormer"
    "distributed_training.distributed_world_size=$processes"
    "dataset.batch_size=$((batch / processes))"
)
[ "$gpus" -gt 0 ] || command+=(common.cpu=true)
[ -z "$save_dir" ] || command+=("hydra.run.dir=$save_dir")
command+=("${extra[@]}")
printf '%q ' "${command[@]}"
echo
[ -z "$dry_run" ] || exit 0

[ ! -x "$root/.venv/bin/fairseq-hydra-train" ] || PATH=$root/.venv/bin:$PATH
command -v fairseq-hydra-train >/dev/null ||
    fail "fairseq-hydra-train is not installed; scripts/install.sh installs it"
python=$(command -v python || command -v python3) || fail "there is no Python on the PATH"
"$python" "$root/scripts/before_training.py" --gpus "$gpus" || exit
exec "${command[@]}"
