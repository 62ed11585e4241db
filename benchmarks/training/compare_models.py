"""Trains language models of one size equally long on one corpus, over several seeds.

    python -m benchmarks compare_models --data DATA

Rows: TransNormer T1 and T2, T2 without LRPE, and fairseq's transformer_lm (pre-norm, as
in the paper's vanilla). All have 4 layers of width 128 and 2 heads of 64, the same
number of parameters to within 1 %, and see the same batches. Each run is a
fairseq-train process with one thread, in a folder of its own under --runs; finished
runs are not repeated, interrupted ones resume. The JSON file keeps every run's command
and losses.
"""

import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from tqdm import tqdm

from fairseq_transnormer.analysis.training_log import read_training_log
from fairseq_transnormer.argument_types import positive_integer
from fairseq_transnormer.cli import command_parser
from fairseq_transnormer.data.fingerprints import DATA_SUFFIXES, files_fingerprint

from ..harness import results
from ..harness.environment import describe

ROOT = Path(__file__).resolve().parents[2]
TRANSNORMER = [
    "--attention-types", "diag*2,norm*2", "--embed-dim", "128", "--num-heads", "2",
    "--ffn-dim", "341",
]  # fmt: skip
ROWS = {
    "TransNormer T1": ["--arch", "transnormer_t1", *TRANSNORMER],
    "TransNormer T2": ["--arch", "transnormer_t2", *TRANSNORMER],
    "TransNormer T2 without LRPE": [
        "--arch", "transnormer_t2", *TRANSNORMER, "--relative-position", "none",
    ],
    "transformer_lm (pre-norm)": [
        "--arch", "transformer_lm", "--decoder-layers", "4",
        "--decoder-embed-dim", "128", "--decoder-input-dim", "128",
        "--decoder-output-dim", "128", "--decoder-ffn-embed-dim", "512",
        "--decoder-attention-heads", "2", "--decoder-normalize-before",
        "--share-decoder-input-output-embed", "--dropout", "0.1",
    ],
}  # fmt: skip


def fingerprint_of(data: Path) -> str:
    """Changes with the dictionary and the text of train and valid."""
    splits = (p for split in ("train", "valid") for p in data.glob(f"{split}*"))
    names = sorted(path.name for path in splits if path.suffix in DATA_SUFFIXES)
    return files_fingerprint(data, ["dict.txt", *names])


def training_command(row: str, seed: int, data: Path, folder: Path, updates: int):
    """The fairseq-train command of one run: 8 x 256 tokens an update."""
    return [
        sys.executable, "-m", "fairseq_cli.train", str(data),
        "--user-dir", str(ROOT / "fairseq_transnormer"),
        "--task", "language_modeling", "--tokens-per-sample", "256",
        "--sample-break-mode", "none", "--batch-size", "8",
        "--required-batch-size-multiple", "1", *ROWS[row],
        "--optimizer", "adam", "--adam-betas", "(0.9,0.98)", "--weight-decay", "0.01",
        "--lr", "0.002", "--lr-scheduler", "inverse_sqrt", "--warmup-updates", "100",
        "--warmup-init-lr", "1e-7", "--max-update", str(updates), "--seed", str(seed),
        "--validate-interval-updates", "100", "--save-interval-updates", "100",
        "--keep-interval-updates", "1", "--no-epoch-checkpoints",
        "--save-dir", str(folder / "checkpoints"), "--num-workers", "0",
        "--log-format", "json", "--log-interval", "20",
        *([] if torch.cuda.is_available() else ["--cpu"]),
    ]  # fmt: skip


def finished(log: Path, updates: int) -> dict | None:
    """Losses of a run whose log says that it came to its end; else None."""
    if not log.exists() or "done training" not in log.read_text(encoding="utf-8"):
        return None
    records = read_training_log(log)
    # fairseq validates at the end, and logs updates by intervals only
    if not records["valid"]:
        return None
    if int(records["valid"][-1]["valid_num_updates"]) < updates:
        return None
    text = log.read_text(encoding="utf-8")
    return {
        "parameters": int(
            re.search(r"num\. shared model params: ([0-9,]+)", text)[1].replace(",", "")
        ),
        "valid": [
            {"update": int(r["valid_num_updates"]), "ppl": float(r["valid_ppl"])}
            for r in records["valid"]
        ],
        "train": [
            {"update": int(r["num_updates"]), "loss": float(r["loss"])}
            for r in records["train_inner"]
        ],
    }


def run(row: str, seed: int, data: Path, runs: Path, updates: int) -> dict:
    """Train one row with one seed, or read what an earlier call left.

    Raises:
        RuntimeError: fairseq-train failed, and the end of its log is in the message,
            or it did not come to its last update.
    """
    name = re.sub(r"[^a-z0-9]+", "-", row.lower()).strip("-")
    folder = runs / f"{name}-seed{seed}-{updates}-{fingerprint_of(data)}"
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "train.log"
    command = training_command(row, seed, data, folder, updates)
    if finished(log, updates) is None:
        with log.open("a", encoding="utf-8") as stream:
            done = subprocess.run(
                command,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        if done.returncode != 0:
            end = "\n".join(log.read_text(encoding="utf-8").splitlines()[-15:])
            raise RuntimeError(f"{row}, seed {seed}: fairseq-train failed\n{end}")
    found = finished(log, updates)
    if found is None:
        raise RuntimeError(
            f"{row}, seed {seed}: {log} has no validation after update {updates}, "
            "though fairseq-train ended without an error"
        )
    return {
        "row": row,
        "seed": seed,
        "command": shlex.join(["python", *command[1:]]).replace(f"{ROOT}/", ""),
        **found,
    }


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = command_parser("benchmarks compare_models", __doc__)
    parser.add_argument("--data", type=Path, required=True, help="binarised corpus")
    parser.add_argument(
        "--out",
        type=results.run_file,
        default=results.FOLDER / "compare_models.json",
        help="JSON file to write (default: %(default)s)",
    )
    parser.add_argument("--runs", type=Path, default=Path("runs/compare_models"))
    number = {"type": positive_integer}
    parser.add_argument("--updates", **number, default=300)
    parser.add_argument("--seeds", **number, nargs="+", default=[1, 2, 3])
    parser.add_argument("--workers", **number, default=2, help="runs at the same time")
    arguments = parser.parse_args(argv)
    if not (arguments.data / "dict.txt").exists():
        parser.error(f"--data {arguments.data}: no dict.txt there; see data_prep")
    jobs = [(row, seed) for seed in dict.fromkeys(arguments.seeds) for row in ROWS]
    with ThreadPoolExecutor(arguments.workers) as pool:
        futures = [
            pool.submit(
                run, row, seed, arguments.data, arguments.runs, arguments.updates
            )
            for row, seed in jobs
        ]
        measurements = [future.result() for future in tqdm(futures, unit="run")]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    results.write(
        arguments.out,
        benchmark="compare_models",
        command="python -m benchmarks compare_models "
        + shlex.join(argv if argv is not None else sys.argv[1:]),
        environment=describe(device),
        settings={
            "updates": arguments.updates,
            "tokens_per_update": 8 * 256,
            "data": fingerprint_of(arguments.data),
        },
        measurements=measurements,
    )
    print(f"compare_models: wrote {arguments.out}")
    return 0
