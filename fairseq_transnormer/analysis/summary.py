"""Summary table and loss curve of a fairseq training run.

    python -m fairseq_transnormer analyse summary --log RUN/train.log \\
        --evaluations RUN/eval-before.log RUN/eval-after.log \\
        --plot RUN/loss.png --json RUN/summary.json

Reads the train.log of a run, or what fairseq printed in any of its formats, and logs of
fairseq-eval-lm.
"""

import argparse
from collections import Counter
from pathlib import Path

from ..data.whole_files import write_json
from ..cli import command_parser, output_file, run_command
from .figures import image_file, pyplot, save
from .training_log import read_evaluation_log, read_training_log

# key of the last validation -> its row
VALIDATION = {
    "valid_ppl": "validation perplexity",
    "valid_accuracy": "validation accuracy (percent)",
}


def plot_losses(records: dict[str, list[dict]], target: Path) -> None:
    """Draw training and validation loss, in bits a token, against the update."""
    figure, axes = pyplot().subplots(figsize=(7, 4), layout="constrained")
    train, valid = records["train_inner"], records["valid"]
    axes.plot(
        [int(r["num_updates"]) for r in train],
        [float(r.get("loss", "nan")) for r in train],
        label="training",
    )
    if valid:
        axes.plot(
            [int(r["valid_num_updates"]) for r in valid],
            [float(r.get("valid_loss", "nan")) for r in valid],
            "o-",
            label="validation",
        )
    axes.set_xlabel("update")
    axes.set_ylabel("loss (bits a token: log2 of the perplexity)")
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, target)


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = command_parser("fairseq_transnormer analyse summary", __doc__)
    parser.add_argument(
        "--log", type=Path, required=True, help="of a run, or its folder"
    )
    parser.add_argument(
        "--evaluations", type=Path, nargs="*", default=[], help="of fairseq-eval-lm"
    )
    parser.add_argument("--plot", type=image_file, help="image to make")
    parser.add_argument("--json", type=output_file, help="file for what was read")
    options = parser.parse_args(argv)
    return run_command(parser.prog, lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    records = read_training_log(options.log)
    logs = list(dict.fromkeys(options.evaluations))
    stems = Counter(log.stem for log in logs)
    perplexities = {
        log.stem if stems[log.stem] == 1 else str(log): read_evaluation_log(log)
        for log in logs
    }
    train = records["train_inner"]
    # one unit, where there is a perplexity
    key = "ppl" if "ppl" in train[-1] else "loss"
    name = "perplexity" if key == "ppl" else "loss (bits a token)"
    rows = [
        ("updates", train[-1]["num_updates"]),
        (f"training {name}, first record", train[0].get(key, "-")),
        (f"training {name}, last record", train[-1].get(key, "-")),
        ("tokens a second, last record", train[-1].get("wps", "-")),
    ]
    if records["valid"]:
        last = records["valid"][-1]
        # a classifier has no perplexity
        for key, name in VALIDATION.items():
            if key in last:
                rows.append((name, last[key]))
    rows += [(f"perplexity, {name}", f"{p:.2f}") for name, p in perplexities.items()]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"| {name:<{width}} | {value!s:>10} |")
    if options.json is not None:
        write_json(options.json, {**records, "perplexities": perplexities})
    if options.plot is not None:
        plot_losses(records, options.plot)
