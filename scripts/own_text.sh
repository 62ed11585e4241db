#!/usr/bin/env bash
# Trains a language model on a folder of your texts. It installs the package, and divides
# the text into train, valid and test, and into subwords. It trains a T2 of a size that
# follows from the text. Then it compares the model's score with trivial rules, generates
# text and draws curves.
#   scripts/own_text.sh my-texts --dest runs/mine
# The same command again resumes; --dry-run prints the plan and the commands. All
# options: scripts/own_text.sh --help
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$root/.venv/bin/python
case " $* " in
    *" --help "* | *" -h "*) [ -x "$python" ] || python=$(command -v python3) ;;
    *) bash "$root/scripts/install.sh" ;;
esac
# appended, not put first: with the repository installed this changes nothing
export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$root
plan=$("$python" -m data_prep plan "$@")
[[ $plan == folder=* ]] || { echo "$plan" && exit; } # the help
eval "$plan" # folder, dest, dry_run; words of the commands below, as arrays
stopped=''
trap 'stopped=1; kill -TERM $(jobs -p) || true' INT TERM HUP
trap '[ -z "$stopped" ] || { echo "$0: the same command resumes" >&2 && exit 75; }' EXIT

run() { # COMMAND...: waits for its end, and forwards signals
    [ -z "$stopped" ] || exit
    printf '%q ' python -m "$@" >&2 && echo >&2
    [ -z "$dry_run" ] || return 0
    (trap '' INT HUP && exec "$python" -m "$@") & # they come as SIGTERM
    wait $! || while kill -0 $! 2>/dev/null; do wait $! || true; done
    wait $! # a signal ends a wait, not the command; this is the command's exit code
}
make() { # FILE SOURCE COMMAND...: write its output, unless FILE is newer than SOURCE
    if [ -n "$dry_run" ]; then run "${@:3}" && return; fi
    [[ $1 -nt $2 ]] || { run "${@:3}" >"$1.part" && mv "$1.part" "$1"; }
}

run data_prep split_text --input "$folder" --dest "$dest/text" "${split[@]}"
run data_prep text --dest "$dest/data-bin" --tokenizer sentencepiece "${encode[@]}" \
    --train "$dest/text/train.txt" --valid "$dest/text/valid.txt" \
    --test "$dest/text/test.txt"
run fairseq_transnormer train alm_small "${train[@]}" --data "$dest/data-bin" \
    --save-dir "$dest/checkpoints"
model=(--path "$dest/checkpoints/checkpoint_best.pt" --data "$dest/data-bin")
make "$dest/score.jsonl" "${model[1]}" fairseq_transnormer score "${model[@]}" --json \
    --input "$dest/text/test.txt" "${score[@]}"
make "$dest/rules.md" "$dest/score.jsonl" fairseq_transnormer analyse \
    frequency_baselines "$dest/data-bin" --split test --text "$dest/text" \
    --score "$dest/score.jsonl" --train-tokens 100000000
make "$dest/generated.txt" "${model[1]}" fairseq_transnormer generate "${model[@]}" \
    --seed 1 --top-p 0.9 --temperature 0.8 --lines 3 --max-new-tokens 80 "${prompts[@]}"
make "$dest/curves.md" "$dest/checkpoints/train.log" fairseq_transnormer analyse \
    run_curves "T2=$dest/checkpoints" --plot "$dest/curves.png"
[ -n "$dry_run" ] || cat "$dest/generated.txt" "$dest/rules.md"
