#!/usr/bin/env bash
# Trains an autoregressive language model as in Table 13 of the paper; --help says how.
set -euo pipefail

task=language_modeling
default_arch=transnormer_t2
default_data=data-bin/wikitext-103
paper_batch=128 # sequences of 512 tokens in an update
gpu_batch=8     # sequences a GPU takes at once, at most
task_flags=(
    --task language_modeling --sample-break-mode none --tokens-per-sample 512
    --criterion cross_entropy
    --adam-eps 1e-8
    --lr-scheduler inverse_sqrt --warmup-updates 8000 --warmup-init-lr 1e-7
    --max-update 100000
)
source "$(dirname "${BASH_SOURCE[0]}")/train.sh"
