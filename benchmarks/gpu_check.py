"""Checks this package on one CUDA device: tests, benchmarks, short trainings.

DIR gets, all flat,
  summary.json            device, versions, and each step with status and time
  verify.json             verify: every kernel of T1 and T2, tried beside float64
  gpu_tests.xml           JUnit results of tests/gpu
  kernels.json            benchmarks kernels, the ops beside their peers
  generation_cost.json    benchmarks generation_cost, torch and Triton
  training_step.json      benchmarks training_step, T2, torch and Triton
  update_cost.json        benchmarks update_cost, the paper's vocabulary
  output_loss.json        benchmarks output_loss, beside libraries
  launch_sweep.json       benchmarks launch_sweep, the fastest form and stages
  linear_attention_forms.json, attention_lengths.json, chunk_sizes.json,
  sampling_layer.json
                          benchmarks of these names
  training.json           loss and tokens a second of TransNormer T1, T2 and fairseq's
                          transformer_lm (pre-norm), 100 updates in bfloat16
  log.txt                 what the steps printed
Every step has a time limit, and one that fails does not stop the others.

Exit code: 0 all steps passed, 1 some did not, 2 wrong usage, 3 no CUDA device (then
only summary.json is written, and says that nothing was measured).
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from fairseq_transnormer.argument_types import positive_number
from fairseq_transnormer.data.whole_files import write_json
from fairseq_transnormer.subcommands import command_parser

from .harness.timed_steps import ROOT, Step, run_steps, write_summary

UPDATES, LOG_INTERVAL = 100, 5


def read_tests(path: Path) -> dict:
    """Counts and failed names of a JUnit file; an error if no test ran."""
    suite = ElementTree.parse(path).getroot().find("testsuite")
    counts = {k: int(suite.get(k)) for k in ("tests", "failures", "errors", "skipped")}
    failed = {}
    for case in suite.iter("testcase"):
        for problem in (*case.findall("failure"), *case.findall("error")):
            name = f"{case.get('classname')}::{case.get('name')}"
            failed[name] = (problem.get("message") or "")[:300]
    if counts["tests"] == counts["skipped"]:
        raise ValueError(f"{path}: no test ran: {counts}")
    return counts | {"failed": failed}


def read_training(output: str, name: str, path: Path) -> dict:
    """Losses (bits a token) and tokens a second; also added to training.json."""
    from fairseq_transnormer.analysis.training_log import parse_training_log

    records = parse_training_log(output)
    inner, valid = records["train_inner"], records["valid"]
    speeds = [float(r["wps"]) for r in inner[len(inner) // 2 :]]
    result = {
        "first_loss": float(inner[0]["loss"]),
        "last_loss": float(inner[-1]["loss"]),
        "valid_loss": float(valid[-1]["valid_loss"]) if valid else None,
        # the second half only: kernels are compiled in the first
        "tokens_a_second": statistics.median(speeds),
        "updates": int(inner[-1]["num_updates"]),
    }
    curve = [[int(r["num_updates"]), float(r["loss"])] for r in inner]
    trainings = json.loads(path.read_text()) if path.exists() else {}
    trainings[name] = result | {"loss_by_update": curve}
    write_json(path, trainings)
    return result


def check_steps(out: Path, work: Path) -> list[Step]:
    """The steps; ``work`` is a folder for what does not stay."""
    python = [sys.executable]
    tests = out / "gpu_tests.xml"
    pytest = ["-m", "pytest", "tests/gpu", "-q", "-p", "no:cacheprovider"]
    benchmark = ["--device", "cuda", "--least-repeats", "5", "--seconds", "0.3"]
    kernels = ["--device", "cuda", "--least-repeats", "5", "--seconds", "0.02"]
    kernels += ["--lengths", "512", "1024", "2048", "4096", "8192", "65536"]
    # what compiles or tunes for long comes last, and ends with the step's time
    kernels += ["--time-limit", "130", "--output", str(out / "kernels.json")]
    generation = ["--contexts", "64", "512", "4096", "16384"]
    generation += ["--dtype", "bfloat16", "--backends", "torch", "triton"]
    generation += ["--output", str(out / "generation_cost.json")]
    # the targets' lengths first: the time limit may cut the others off
    training = ["--lengths", "512", "8192", "2048", "16384", "--variants", "T2"]
    training += ["--dtype", "bfloat16", "--backends", "triton", "torch"]
    training += ["--quadratic-limit-gib", "2", "--time-limit", "45"]
    training += ["--output", str(out / "training_step.json")]
    text = ["--tokenizer", "sentencepiece", "--vocab-size", "4000"]
    for split in ("train", "valid", "test"):
        text += [f"--{split}", str(work / "corpus" / f"{split}.txt")]
    sweep = ["--device", "cuda", "--time-limit", "100"]
    sweep += ["--output", str(out / "launch_sweep.json")]
    prepare = [*python, "-m", "data_prep"]
    measure = [*python, "-m", "benchmarks"]
    verify = [*python, "-m", "fairseq_transnormer", "verify", "--again", "--isolated"]
    verify += ["--arch", "transnormer_t1", "transnormer_t2", "linear_transformer"]
    verify += ["--dtype", "bfloat16", "float16", "float32"]
    return [
        Step("verify", 0.3, [*verify, "--output", str(out / "verify.json")]),
        Step(
            "gpu_tests",
            0.45,
            [*python, *pytest, f"--junitxml={tests}"],
            read=lambda _: read_tests(tests),
        ),
        Step(
            "corpus",
            0.08,
            [*prepare, "stdlib_corpus", "--dest", str(work / "corpus")],
        ),
        Step(
            "data",
            0.1,
            [*prepare, "text", "--dest", str(work / "data"), *text],
            needs="corpus",
        ),
        *training_steps(out, work),
        Step("kernels", 0.27, [*measure, "kernels", *kernels]),
        Step(
            "generation_cost",
            0.15,
            [*measure, "generation_cost", *benchmark, *generation],
        ),
        Step("training_step", 0.12, [*measure, "training_step", *benchmark, *training]),
        *update_steps(out, measure, benchmark),
        *form_steps(out, measure, benchmark),
        Step("launch_sweep", 0.2, [*measure, "launch_sweep", *sweep]),
    ]


def update_steps(out: Path, measure: list[str], benchmark: list[str]) -> list[Step]:
    """What the vocabulary costs: a whole update, and the loss alone."""
    flags = {
        "update_cost": ["--batches", "8192x512", "16384x2048", "--time-limit", "35"],
        "output_loss": ["--tokens", "4096", "16384", "--time-limit", "15"],
    }
    return [
        Step(
            name,
            share,
            [*measure, name, *own, *benchmark, "--dtype", "bfloat16"]
            + ["--output", str(out / f"{name}.json")],
        )
        for (name, own), share in zip(flags.items(), (0.08, 0.04), strict=True)
    ]


def form_steps(out: Path, measure: list[str], benchmark: list[str]) -> list[Step]:
    """The forms of linear attention, their chunk size, sampling: small shares."""
    flags = {
        "linear_attention_forms": ["--backends", "torch", "triton", "--call-limit"]
        + ["0.5", "--time-limit", "15", "--quadratic-limit-gib", "4"]
        + ["--lengths", "256", "1024", "4096", "16384", "--tokens", "16384"],
        "attention_lengths": ["--call-limit", "0.5", "--time-limit", "12"]
        + ["--quadratic-limit-gib", "8"],
        "chunk_sizes": ["--tokens", "16384", "--time-limit", "8"],
        "sampling_layer": ["--call-limit", "0.5", "--time-limit", "8"],
    }
    shares = 0.06, 0.05, 0.04, 0.04
    shared = [*benchmark[:-1], "0.05", "--dtype", "bfloat16", "--output"]
    return [
        Step(
            name,
            share,
            [*measure, name, *own, *shared, str(out / f"{name}.json")],
        )
        for (name, own), share in zip(flags.items(), shares, strict=True)
    ]


def training_steps(out: Path, work: Path) -> list[Step]:
    """The paper's width, heads and layers; updates of 16 x 512 tokens."""
    transformer = ["--decoder-embed-dim", "512", "--decoder-ffn-embed-dim", "2048"]
    transformer += ["--decoder-layers", "6", "--decoder-attention-heads", "8"]
    transformer += ["--decoder-normalize-before"]
    transformer += ["--share-decoder-input-output-embed", "--dropout", "0.1"]
    in_torch, in_triton = (
        {"FAIRSEQ_TRANSNORMER_BACKEND": backend} for backend in ("torch", "triton")
    )
    models = {
        "transnormer_t1": (["--arch", "transnormer_t1"], in_triton),
        "transnormer_t2": (["--arch", "transnormer_t2"], in_triton),
        "transnormer_t2, torch ops": (["--arch", "transnormer_t2"], in_torch),
        "transformer_lm": (["--arch", "transformer_lm", *transformer], {}),
    }
    shared = [str(work / "data"), "--user-dir", str(ROOT / "fairseq_transnormer")]
    shared += ["--task", "language_modeling", "--tokens-per-sample", "512"]
    shared += ["--sample-break-mode", "none", "--batch-size", "16", "--bf16"]
    shared += ["--required-batch-size-multiple", "1", "--max-update", str(UPDATES)]
    shared += ["--optimizer", "fused_adam", "--adam-betas", "(0.9,0.98)"]
    shared += ["--weight-decay", "0.01", "--clip-norm", "1.0", "--lr", "0.001"]
    shared += ["--lr-scheduler", "inverse_sqrt", "--warmup-updates", "50"]
    shared += ["--warmup-init-lr", "1e-7", "--seed", "1", "--no-save"]
    shared += ["--log-format", "json", "--log-interval", str(LOG_INTERVAL)]
    shared += ["--num-workers", "0", "--save-dir", str(work / "checkpoints")]
    return [
        Step(
            f"training: {name}",
            0.12,
            [sys.executable, "-m", "fairseq_cli.train", *shared, *flags],
            read=lambda output, name=name: read_training(
                output, name, out / "training.json"
            ),
            needs="data",
            environment=environment,
        )
        for name, (flags, environment) in models.items()
    ]


def describe_device() -> dict:
    """Device, capability and versions.

    Raises:
        RuntimeError: there is no CUDA device, or no torch; the message says which.
    """
    try:
        import torch
    except ImportError as error:
        raise RuntimeError(f"torch cannot be imported: {error}") from error
    if not torch.cuda.is_available():
        raise RuntimeError(f"torch {torch.__version__} sees no CUDA device")
    from .harness.environment import describe

    try:
        import triton

        version = triton.__version__
    except ImportError:
        version = None
    return describe(torch.device("cuda")) | {
        "capability": list(torch.cuda.get_device_capability()),
        "memory_bytes": torch.cuda.get_device_properties(0).total_memory,
        "triton": version,
    }


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = command_parser("benchmarks gpu_check", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder, empty or new")
    parser.add_argument(
        "--seconds",
        type=positive_number,
        default=570,
        help="for everything (default: 570)",
    )
    options = parser.parse_args(arguments)
    out = options.out.resolve()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        parser.error(f"--out {options.out}; allowed: a folder that is empty or new")
    out.mkdir(parents=True, exist_ok=True)
    try:
        device = describe_device()
    except RuntimeError as error:
        reason = f"nothing was measured: {error}"
        write_summary(out, {"measured": False, "reason": reason, "steps": []})
        print(f"gpu_check: {reason}", file=sys.stderr)
        return 3
    summary = {"measured": True, "environment": device}
    with tempfile.TemporaryDirectory() as work:
        steps = check_steps(out, Path(work))
        passed = run_steps(steps, out, options.seconds, summary)
    return 0 if passed else 1
