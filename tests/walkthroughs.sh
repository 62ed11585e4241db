#!/usr/bin/env bash
# Runs the walkthroughs of the documentation in this clone, and writes their output. They
# are own text, scoring, transformers with lm-evaluation-harness, training without
# fairseq, and the wheel in an empty environment. For a release, or a change of several.
#
# usage: tests/walkthroughs.sh OUT
#   OUT   file for the output
# The text is docs/. All other files are in runs/walkthroughs, which must be a new folder.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
case ${1:-} in
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
esac
[[ $# -eq 1 && $1 != -* ]] || { sed -n '6s/^# //p' "$0" >&2; exit 2; }
mkdir -p "$(dirname "$1")"
file=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cd "$root"
runs=runs/walkthroughs
[ ! -e "$runs" ] || { echo "$0: $runs exists; allowed: a new folder" >&2; exit 2; }
bash scripts/install.sh
python=.venv/bin/python
$python -m pip install -qq --disable-pip-version-check -c constraints.txt \
    'lm-eval>=0.4.13'
mkdir -p "$runs"
: >"$file"
export PATH=$root/.venv/bin:$PATH OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}

walkthrough() { # NAME: begins its part
    cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
    [ ! -s "$file" ] || echo >>"$file"
    echo "== $1: commit $(git rev-parse --short HEAD), $(nproc) cores of ${cpu:-?}" >>"$file"
}
go() { # COMMAND...: shows a command, what it prints and how long it took
    local start=$SECONDS code=0
    printf '\n$ %s\n' "$*" >>"$file"
    # of a bar what stands in the end; paths as seen from here
    bash -c "$*" 2>&1 | sed -e 's/.*\r\(.\)/\1/' -e "s#$root/##g" >>"$file" || code=$?
    printf '[exit code %d, %d s]\n' "$code" $((SECONDS - start)) >>"$file"
    [ "$code" = 0 ] || { tail -n 20 "$file" >&2; exit 1; }
}

walkthrough own_text
go bash scripts/own_text.sh docs --dest $runs/docs --width 64 --updates 300 \
    "2>&1 | grep -vE '\| (INFO|DEBUG) \||^ *[()]'"
go bash scripts/own_text.sh docs --dest $runs/docs --width 64 --updates 300 "| tail -n 12"

best=$runs/docs/checkpoints/checkpoint_best.pt
data=$runs/docs/data-bin
text=$runs/docs/text/test.txt
walkthrough score
go python -m fairseq_transnormer score --path $best --data $data --input $text
go fairseq-eval-lm $data --user-dir fairseq_transnormer --task language_modeling \
    --path $best --gen-subset test --tokens-per-sample 256 --context-window 0 \
    --sample-break-mode none --cpu --batch-size 4 "2>&1 | grep 'Loss (base 2)'"

walkthrough transformers
go python -m fairseq_transnormer export $best --data $data --dest $runs/exported
cat >$runs/continue.py <<'PYTHON'
import fairseq_transnormer.hf
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("runs/walkthroughs/exported")
tokenizer = AutoTokenizer.from_pretrained("runs/walkthroughs/exported")
prompts = tokenizer(["The model", "A run that"], padding=True, return_tensors="pt")
for text in tokenizer.batch_decode(
    model.generate(**prompts, max_new_tokens=20, do_sample=False),
    skip_special_tokens=True,
):
    print(repr(text))
PYTHON
go python $runs/continue.py "2>/dev/null"
go python -m fairseq_transnormer generate --path $best --data $data --beam 1 \
    --max-new-tokens 20 --prompt "'The model'" --prompt "'A run that'"
mkdir -p $runs/tasks
grep -v '^ *$' $text >$runs/lines.txt
sed -n '/^task: own_text/,/^metric_list/p' docs/inference.md |
    sed "s#/path/to/lines.txt#$root/$runs/lines.txt#" >$runs/tasks/own_text.yaml
go HF_HUB_OFFLINE=1 python -c "'import fairseq_transnormer.hf, lm_eval.__main__ as m;" \
    "m.cli_evaluate()'" run --model hf \
    --model_args pretrained=$runs/exported,add_bos_token=False \
    --include_path $runs/tasks --tasks own_text --device cpu "2>/dev/null | grep perplexity"
# the harness scores the words of a line, not its end; words are what \s+ divides
cat >$runs/without_ends.py <<'PYTHON'
import json
import math
import re
import sys

rows = [json.loads(line) for line in sys.stdin][:-1]
total = sum(p for row in rows for _, p in row["token_log_probs"][:-1])
lines = open("runs/walkthroughs/lines.txt", encoding="utf-8").read().splitlines()
words = sum(len(re.split(r"\s+", line)) for line in lines)
size = sum(len(line.encode()) for line in lines)
print("word perplexity", math.exp(-total / words), "byte perplexity", math.exp(-total / size))
PYTHON
go python -m fairseq_transnormer score --path $best --data $data --by line \
    --input $runs/lines.txt --tokens --json "| python $runs/without_ends.py"

walkthrough plain_pytorch
model="--attention-types diag,norm --embed-dim 64 --num-heads 1 --ffn-dim 170"
common="--arch transnormer_t2 $model --tokens-per-sample 128 --batch-size 4 \
    --update-freq 2 --lr 0.002 --warmup-updates 20 --weight-decay 0.01 --clip-norm 0.0 \
    --seed 1 --max-update 40 --log-interval 5 --save-interval-updates 20 --cpu"
go python examples/train_plain_pytorch.py $data --save-dir $runs/plain $common \
    "| grep -o '^[a-z_]* loss [0-9.]*\|num_updates [0-9]*' | paste - -"
go fairseq-train $data --user-dir fairseq_transnormer --task language_modeling \
    --save-dir $runs/fairseq $common --sample-break-mode none --no-epoch-checkpoints \
    --criterion chunked_cross_entropy --optimizer fused_adam \
    --adam-betas "'(0.9,0.98)'" --lr-scheduler inverse_sqrt --warmup-init-lr 1e-7 \
    --required-batch-size-multiple 1 --validate-interval-updates 20 --num-workers 0 \
    "--log-format json 2>&1 | grep -o '\"\(valid_\)*\(loss\|num_updates\)\": \"[0-9.]*' |" \
    "paste - -"

walkthrough wheel
go python -m pip -q wheel --no-deps --no-build-isolation --wheel-dir $runs/wheel .
go python3 -m venv $runs/venv
go $runs/venv/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt \
    setuptools "torch==$(sed -n 's/^torch==//p' constraints.txt)"
go $runs/venv/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt \
    --no-build-isolation "\"\$(echo $runs/wheel/fairseq_transnormer-*.whl)[all]\""
empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT
for module in fairseq_transnormer data_prep; do
    names=$(cd "$empty" && "$root/$runs/venv/bin/python" -c \
        "import $module.__main__ as m; print(*m.COMMANDS)")
    for name in $names; do
        go "cd $empty && $root/$runs/venv/bin/python -m $module $name --help | head -n 4"
    done
done
# places of this machine say nothing to others
sed -i "s#$empty#EMPTY#g; s#$root/##g; s#$root#.#g" "$file"
echo "transcripts: $file"
