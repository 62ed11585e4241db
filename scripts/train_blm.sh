#!/usr/bin/env bash
# Trains a bidirectional language model as in Table 13 of the paper; --help says how.
set -euo pipefail

task=masked_lm
default_arch=roberta_transnormer_t2
default_data=data-bin/wikitext-103-bpe
paper_batch=512 # sequences of 512 tokens in an update
gpu_batch=32    # sequences a GPU takes at once, at most
task_flags=(
    --task masked_lm --sample-break-mode complete --tokens-per-sample 512
    --mask-prob 0.15 --criterion masked_lm
    # a paragraph of more than 512 tokens would end the run at its first validation
    --skip-invalid-size-inputs-valid-test
    --adam-eps 1e-6
    --lr-scheduler polynomial_decay --warmup-updates 3000 --total-num-update 50000
    --max-update 50000
)
source "$(dirname "${BASH_SOURCE[0]}")/train.sh"
