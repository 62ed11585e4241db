#!/usr/bin/env bash
# Installs the package and trains a small T2 on the Python documentation with
# fairseq-train. Evaluates it on held-out text before and after, generates text, and draws
# its loss curve. Takes under 10 minutes on 2 CPU cores; a GPU is used if there is one.
# Only packages are downloaded.
#
# usage: scripts/quickstart.sh [--arch ARCH] [--updates N] [--dir DIR]
#   --arch     transnormer_t1 or transnormer_t2 (default: transnormer_t2)
#   --updates  training updates of 2,048 tokens (default: 600)
#   --dir      folder of all files (default: runs/quickstart); an interrupted run resumes
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
arch=transnormer_t2 updates=600 dir=runs/quickstart
while [ $# -gt 0 ]; do
    case $1 in
        --arch) arch=${2:?--arch needs a value} && shift 2 ;;
        --updates) updates=${2:?--updates needs a value} && shift 2 ;;
        --dir) dir=$(realpath -ms -- "${2:?--dir needs a value}"); shift 2 ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
        *) echo "quickstart.sh: unknown argument '$1' (see --help)" >&2 && exit 2 ;;
    esac
done
cd "$root"
case $arch in
    transnormer_t1 | transnormer_t2) ;;
    *)
        echo "quickstart.sh: --arch '$arch'; allowed: transnormer_t1, transnormer_t2" >&2
        exit 2
        ;;
esac
[[ $updates =~ ^[1-9][0-9]+$ ]] || {
    echo "quickstart.sh: --updates '$updates'; allowed: a number from 10 on" >&2
    exit 2
}
[[ $dir != *:* ]] || {
    echo "quickstart.sh: --dir $dir; allowed: no colon, which separates data folders" >&2
    exit 2
}
if [ -f "$dir/arch" ] && [ "$(cat "$dir/arch")" != "$arch" ]; then
    echo "quickstart.sh: $dir holds a run of $(cat "$dir/arch");" \
        "give --dir another folder for $arch" >&2
    exit 2
fi
if [ ! -f "$dir/arch" ] && [ -e "$dir" ] && [ -n "$(ls -A "$dir")" ]; then
    echo "quickstart.sh: --dir $dir holds files of others; allowed: a new folder," \
        "or that of an earlier run" >&2
    exit 2
fi

step() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }

step "Installation"
bash scripts/install.sh
bin=$root/.venv/bin

step "Corpus: the documentation of Python's standard library"
mkdir -p "$dir"
echo "$arch" >"$dir/arch"
"$bin/python" -m data_prep stdlib_corpus --dest "$dir/corpus"
"$bin/python" -m data_prep text --dest "$dir/data-bin" \
    --tokenizer sentencepiece --vocab-size 4000 \
    --train "$dir/corpus/train.txt" --valid "$dir/corpus/valid.txt" \
    --test "$dir/corpus/test.txt"

# 2 layers of block-diagonal and 2 of linear attention; batches of 8 x 256 tokens
model=(--arch "$arch" --attention-types "diag*2,norm*2" --embed-dim 192 --num-heads 3
    --ffn-dim 512)
data=("$dir/data-bin" --user-dir fairseq_transnormer --task language_modeling
    --tokens-per-sample 256 --sample-break-mode none --batch-size 8
    --required-batch-size-multiple 1 --criterion chunked_cross_entropy)
training=(--optimizer fused_adam --adam-betas "(0.9,0.98)" --weight-decay 0.01 --seed 1
    --num-workers 0)
"$bin/python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' ||
    training+=(--cpu)

# lines of fairseq's log: every fiftieth update, validations, and the end of the run
progress='s/.*train_inner.* ppl=([0-9.]+).* wps=([0-9.]+).* num_updates=([0-9]*[05]0),.*/update \3: training perplexity \1, \2 tokens a second/p
s/.*Loaded checkpoint .* @ ([0-9]+) updates.*/resumed at update \1/p
s/.*valid on .* ppl ([0-9.]+) .* num_updates ([0-9]+).*/update \2: validation perplexity \1/p
s/.*(is of a finished run: .*nothing is left to do).*/the checkpoint \1/p'

died() { # CODE LOG
    local how="exit code $1"
    [ "$1" -le 128 ] || how="signal $(($1 - 128)) ($(kill -l "$1"))"
    tail -n 20 "$2" >&2
    echo "quickstart.sh: ended by $how; to resume: bash scripts/quickstart.sh" \
        "--arch $arch --updates $updates --dir $(printf %q "$dir")" >&2
    exit 1
}

train() { "$bin/fairseq-train" "${data[@]}" "${model[@]}" "${training[@]}" "$@"; }

watch() { # COMMAND...: a terminal shows a bar; otherwise lines show the progress
    if [ -t 2 ]; then
        PYTHONWARNINGS=ignore "$@" >>"$dir/output.log"
    else
        "$@" 2>&1 | tee -a "$dir/output.log" | sed -un -E "$progress"
    fi || died $? "$dir/output.log"
}

evaluate() { # CHECKPOINT NAME: perplexity on the test split
    "$bin/fairseq-eval-lm" "$dir/data-bin" --user-dir fairseq_transnormer --path "$1" \
        --gen-subset test --tokens-per-sample 256 --batch-size 8 \
        >"$dir/eval-$2.log" 2>&1 || died $? "$dir/eval-$2.log"
    sed -n 's/.*Perplexity: /test perplexity a token: /p' "$dir/eval-$2.log"
}

step "Before training: test perplexity of random weights"
# one update at a rate too small to change a weight in float32; a rate of 0 is refused
train --lr-scheduler fixed --lr 1e-20 --max-update 1 --disable-validation \
    --save-dir "$dir/untrained" >"$dir/untrained.log" 2>&1 || died $? "$dir/untrained.log"
evaluate "$dir/untrained/checkpoint_last.pt" before

step "Training: $arch, $updates updates"
watch train --lr-scheduler inverse_sqrt --lr 0.002 --warmup-updates 100 \
    --warmup-init-lr 1e-7 --max-update "$updates" --log-interval 10 \
    --validate-interval-updates 100 --save-interval-updates 100 \
    --keep-interval-updates 1 --no-epoch-checkpoints --save-dir "$dir/checkpoints"

step "After training: test perplexity"
evaluate "$dir/checkpoints/checkpoint_last.pt" after

step "Text"
bash scripts/generate.sh --path "$dir/checkpoints/checkpoint_last.pt" \
    --data "$dir/data-bin" --max-new-tokens 60 --top-p 0.9 --temperature 0.8 --seed 1 \
    --prompt "Return the" --prompt "If the file" --prompt "This module provides" |
    tee "$dir/generated.txt"

step "Summary"
"$bin/python" -m fairseq_transnormer analyse run_curves "$arch=$dir/checkpoints" \
    --evaluations "$dir/eval-before.log" "$dir/eval-after.log" \
    --plot "$dir/loss.png" --output "$dir/summary.json"
step "Done: loss curve in $dir/loss.png, text in $dir/generated.txt"
printf -v place '%q ' --path "$dir/checkpoints/checkpoint_best.pt" --data "$dir/data-bin"
echo "next: source .venv/bin/activate
bash scripts/generate.sh $place--prompt 'Return the'
python -m fairseq_transnormer score $place--text 'Return'"
