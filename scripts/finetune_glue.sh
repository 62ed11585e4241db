#!/usr/bin/env bash
# Fine-tunes a pre-trained checkpoint on problems of GLUE; --help says how.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
    cat <<'END'
usage: scripts/finetune_glue.sh CHECKPOINT PROBLEM... [options]

  PROBLEM   mnli qnli qqp sst2 mrpc cola rte stsb, all (the paper's seven columns), or
            own with --data sentence_prediction=DIR, a folder of yours

Sweeps over the paper's learning rates, 3 epochs each, and writes a table of the best on
the development set, all results as JSON, and a plot. Each run is a folder of its own;
the same command again goes on. Options are those of
  python -m fairseq_transnormer reproduce finetune --help
such as --seeds 1 2 3, --lr 1e-5 3e-5, --gpus 0,1, --jobs 8, --pooling mean,
--data sentence_prediction=DIR (default: data-bin/glue, by data_prep glue), --slurm.
END
}

case ${1:-} in
    --help | -h) usage && exit 0 ;;
    '' | -*) usage >&2 && exit 2 ;;
esac
checkpoint=$1
shift
problems=()
while [ $# -gt 0 ] && [[ $1 != -* ]]; do
    case $1 in
        all) problems+=(mnli qnli qqp sst2 mrpc cola) ;;
        *) problems+=("$1") ;;
    esac
    shift
done
[ ${#problems[@]} -gt 0 ] || {
    echo "finetune_glue.sh: no problem given; --help lists them" >&2
    exit 2
}
[ ! -x "$root/.venv/bin/python" ] || PATH=$root/.venv/bin:$PATH
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
exec python -m fairseq_transnormer reproduce finetune "$checkpoint" "${problems[@]}" "$@"
