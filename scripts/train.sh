# What train_alm.sh and train_blm.sh share. They set task, default_arch, default_data,
# paper_batch, gpu_batch and task_flags, and source this file with their arguments.

script=$(basename "$0")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
    cat <<END
usage: scripts/$script [options] [-- fairseq-train flags]

Trains on WikiText-103 with the values of the paper's Table 13, $paper_batch sequences an
update on any number of GPUs that divides them. The same command again goes on from the
last checkpoint, with as many GPUs as there are then; keep --batch-size, which cuts the
data up. On SIGTERM it writes a checkpoint and ends with exit code 75. Several nodes:
docs/distributed_training.md.

  --arch NAME        architecture (default: $default_arch)
  --data DIR         binary data with dict.txt, train and valid (default:
                     $default_data)
  --gpus N           GPUs of each node; 0 trains on the CPU (default: 8)
  --workers N        processes of each node, with --gpus 0 (default: 1)
  --nodes N          machines (default: 1). In a step of Slurm with one task a node
                     (scripts/slurm/train.sbatch) that is all; elsewhere start the same
                     command on each of them with
  --rendezvous H:P   one of them and a free port there, where they meet (torchrun)
  --batch-size N     sequences that one GPU takes at once: fewer need less memory, and
                     more batches are accumulated (default: $gpu_batch, or fewer
                     where they must divide, or a GPU's memory is small)
  --precision NAME   fp32 (the paper's), fp16 or bf16 (default: fp32)
  --save-dir DIR     checkpoints (default: runs/ARCH)
  --dry-run          print the command only
  --help             this text

Flags behind -- go to fairseq-train and win over the script's own, for example
  scripts/$script --gpus 1 -- --max-update 1000 --tensorboard-logdir runs/log

SEQUENCES_PER_UPDATE=N in the environment stands for another number than $paper_batch. Where
flags behind -- make a third one, training does not start. An empty SEQUENCES_PER_UPDATE
allows any: --batch-size sequences on each GPU, and the --update-freq behind --.
END
}

fail() {
    echo "$script: $*" >&2
    exit 2
}

arch=$default_arch data=$default_data gpus=8 workers= nodes=1 rendezvous=
batch= precision=fp32 save_dir= dry_run=
extra=()
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) usage && exit 0 ;;
        --dry-run) dry_run=yes && shift && continue ;;
        --) shift && extra=("$@") && break ;;
        --arch | --data | --gpus | --workers | --nodes | --rendezvous) ;;
        --batch-size | --precision | --save-dir) ;;
        *) fail "unknown argument '$1'; --help lists them (fairseq-train's follow --)" ;;
    esac
    [ $# -ge 2 ] || fail "$1 needs a value"
    case $1 in
        --arch) arch=$2 ;;
        --data) data=$2 ;;
        --gpus) gpus=$2 ;;
        --workers) workers=$2 ;;
        --nodes) nodes=$2 ;;
        --rendezvous) rendezvous=$2 ;;
        --batch-size) batch=$2 ;;
        --precision) precision=$2 ;;
        --save-dir) save_dir=$2 ;;
    esac
    shift 2
done
save_dir=${save_dir:-runs/$arch}

# not ":-": an empty one allows any number
total_batch=${SEQUENCES_PER_UPDATE-$paper_batch}
[[ $total_batch =~ ^([1-9][0-9]{0,8})?$ ]] || fail "SEQUENCES_PER_UPDATE=$total_batch;" \
    "allowed: 1, 2, ... or nothing, for any number"
[[ $gpus =~ ^(0|[1-9][0-9]{0,5})$ ]] || fail "--gpus $gpus; allowed: 0 (CPU), 1, 2, ..."
[[ $workers =~ ^([1-9][0-9]{0,5})?$ ]] || fail "--workers $workers; allowed: 1, 2, ..."
[[ $nodes =~ ^[1-9][0-9]{0,5}$ ]] || fail "--nodes $nodes; allowed: 1, 2, ..."
[[ $rendezvous =~ ^([^:]+:[1-9][0-9]*)?$ ]] ||
    fail "--rendezvous $rendezvous; allowed: HOST:PORT"
[ -z "$workers" ] || [ "$gpus" = 0 ] ||
    fail "--workers $workers with --gpus $gpus; allowed: --gpus 0, for the CPU"
[[ $batch =~ ^([1-9][0-9]{0,5})?$ ]] || fail "--batch-size $batch; allowed: 1, 2, ..."
case $precision in
    fp32) precision_flags=() ;;
    fp16 | bf16) precision_flags=("--$precision") ;;
    *) fail "--precision $precision; allowed: fp32, fp16, bf16" ;;
esac
[ "$gpus" -gt 0 ] || [ "$precision" != fp16 ] ||
    fail "--precision fp16 needs a GPU; allowed with --gpus 0: fp32, bf16"
for file in dict.txt train.bin train.idx valid.bin valid.idx; do
    [ -f "$data/$file" ] ||
        fail "--data $data has no $file; data_prep/README.md says how to make the data"
done

# who starts the processes: fairseq alone, fairseq with what Slurm tells it, or torchrun
per_node=$((gpus > 0 ? gpus : ${workers:-1}))
processes=$((nodes * per_node))
starter=fairseq
if [ "$nodes" -gt 1 ] && [ "$gpus" -gt 0 ] && [ -z "$rendezvous" ] &&
    [ "${SLURM_STEP_NUM_NODES:-}" = "$nodes" ] && [ "${SLURM_STEP_NUM_TASKS:-}" = "$nodes" ]
then
    starter=slurm
elif [ "$nodes" -gt 1 ]; then
    [ -n "$rendezvous" ] || fail "--nodes $nodes needs --rendezvous HOST:PORT, or a" \
        "step of Slurm with $nodes tasks, one a node (scripts/slurm/train.sbatch)"
    starter=torchrun
elif [ "$gpus" -eq 0 ] && [ "$per_node" -gt 1 ]; then
    starter=torchrun
fi

if [ -x "$root/.venv/bin/fairseq-train" ]; then PATH=$root/.venv/bin:$PATH; fi
python=$(command -v python || command -v python3) || fail "there is no Python on the PATH"

# total_batch = processes * batch * update_freq, exactly. Nodes must agree on the batch,
# and do not know each other's memory
most=$gpu_batch why=
if [ -z "$batch" ] && [ "$gpus" -gt 0 ] && [ "$nodes" -eq 1 ]; then
    fitting=$("$python" "$root/fairseq_transnormer/launching/gpu_memory.py" \
        "$task" "$precision" --gpus "$gpus" --most "$gpu_batch")
    read -r most why <<<"$fitting"
    [ -z "$why" ] || echo "$script: $most sequences at once on a GPU, or fewer: $why" >&2
fi
if [ "$total_batch" ]; then
    taken=(--most "$most")
    [ -z "$batch" ] || taken=(--batch "$batch")
    layout=$("$python" "$root/fairseq_transnormer/launching/update_layout.py" \
        "$total_batch" "$processes" "${taken[@]}" 2>&1) ||
        fail "--nodes $nodes, $per_node processes each: $layout"
    read -r batch update_freq <<<"$layout"
else
    batch=${batch:-$most} update_freq=1
fi

device_flags=(--distributed-world-size "$processes")
[ "$gpus" -gt 0 ] || device_flags+=(--cpu)
launch=()
case $starter in
    slurm) device_flags+=(--distributed-port "${MASTER_PORT:-29500}") ;;
    torchrun)
        meeting=(--standalone)
        [ "$nodes" -eq 1 ] || meeting=(--rdzv-backend c10d --rdzv-endpoint "$rendezvous"
            --rdzv-id "$(basename "$save_dir")" --nnodes "$nodes")
        launch=(torchrun "${meeting[@]}" --nproc-per-node "$per_node" --no-python)
        # fairseq's pytorch_ddp wants GPUs
        [ "$gpus" -gt 0 ] ||
            device_flags+=(--distributed-backend gloo --ddp-backend legacy_ddp)
        ;;
esac
command=(
    "${launch[@]}" fairseq-train "$data" --user-dir "$root/fairseq_transnormer" --arch "$arch"
    "${task_flags[@]}"
    --optimizer adam --adam-betas '(0.9,0.98)' --weight-decay 0.01
    --lr 0.0005 --clip-norm 0
    "${device_flags[@]}" "${precision_flags[@]}"
    --batch-size "$batch" --update-freq "$update_freq"
    # fairseq's default, 8, silently drops the last batch of a split
    --required-batch-size-multiple 1
    --save-dir "$save_dir" --save-interval-updates 1000 --keep-interval-updates 2
    --no-epoch-checkpoints --best-checkpoint-metric loss
    # a worker that waits as long for another ends with an error
    --heartbeat-timeout 600
    --seed 1 --log-format simple --log-interval 100
    "${extra[@]}"
)
told="$((processes * batch * update_freq)) sequences = $nodes x $per_node workers x $batch at"
told+=" once x $update_freq accumulated"
for word in "${extra[@]}"; do
    case ${word%%=*} in
        --batch-size | --max-sentences | --max-tokens | --update-freq) ;;
        --distributed-world-size) ;;
        *) continue ;;
    esac
    told="what $word behind -- makes of it"
    [ -z "$total_batch" ] || told+="; training starts if that is $total_batch sequences"
done
echo "$script: an update: $told" >&2
printf '%q ' "${command[@]}"
echo
[ -z "$dry_run" ] || exit 0

command -v fairseq-train >/dev/null ||
    fail "fairseq-train is not installed; scripts/install.sh installs it"
"$python" "$root/scripts/before_training.py" --task "$task" --arch "$arch" \
    --gpus "$gpus" --save-dir "$save_dir" || exit
# the plugin looks that an update has them, whatever processes and flags there are
export SEQUENCES_PER_UPDATE=$total_batch
[ "$gpus" -gt 0 ] || export CUDA_VISIBLE_DEVICES=
[ "$starter" = torchrun ] || exec "${command[@]}"

# torchrun ends with 1 whatever its workers end with: they leave a note (launching/
# exit_code.py). It hands on SIGTERM, and dies of SIGUSR1 and SIGUSR2
notes=$(mktemp -d)
export RESUMABLE_FILE=$notes/resumable
set -m # or bash makes what runs in the background deaf to SIGINT
"${command[@]}" &
run=$!
trap 'again=yes; kill -TERM "$run"' TERM USR1 USR2
trap 'again=yes; kill -INT "$run"' INT
again=yes code=0
while [ "$again" ]; do again= code=0; wait "$run" || code=$?; done # a trap ends a wait
[ "$code" -eq 0 ] || [ ! -e "$RESUMABLE_FILE" ] || code=75
rm -r "$notes"
exit "$code"
