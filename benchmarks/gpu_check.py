"""Checks this package on a CUDA device that is rented for minutes, a stage at a time.

stages, each of use alone, what matters most first:
  first     do the kernels run and compute rightly, how fast are they: smoke, verify,
            kernels beside SDPA, a training step, tests/gpu
  second    trainings of 100 updates, a whole update, the ops beside their peers, tests
            of the largest tensors, generation
  gates     what a kernel has to beat to stay: layers by torch.compile, matmul, forms
  evidence  Table 4's decoders at the paper's width, two seeds, --updates each
DIR gets STAGE.txt, a line when a step ends, and STAGE.tgz: summary.json (device,
versions, each step with status and time), the log of each step, and what it measured,
as JSON. Both are written anew after each step; whenever the machine is taken away they
are whole. A step has a time limit, and one that fails does not stop the others.
A stage's verdicts on kernels are its own; Triton's cache serves the next one, too.

Exit code: 0 all steps passed, 1 some did not, 2 wrong usage, 3 no CUDA device (then
nothing is measured).
"""

import json
import re
import shlex
import statistics
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fairseq_transnormer.argument_types import positive_integer, positive_number
from fairseq_transnormer.data.whole_files import write_json, write_whole
from fairseq_transnormer.subcommands import command_parser, output_folder

from .steps import ROOT, Step, run_steps

BENCH = "-m benchmarks {} --device DEVICE --time-limit SECONDS --least-repeats 5"
VERIFY = """-m fairseq_transnormer verify --again --workers 12 --arch transnormer_t2
    transnormer_t1 linear_transformer --dtype"""
TESTS = "-m pytest -v -p no:cacheprovider tests/gpu"
STATUS = "PASSED|FAILED|SKIPPED|ERROR"
TRAIN = """-m fairseq_cli.train DATA --user-dir PLUGIN
    --task language_modeling --tokens-per-sample 512 --sample-break-mode none
    --required-batch-size-multiple 1 --batch-size 16 --bf16 --max-update 100
    --optimizer fused_adam --adam-betas (0.9,0.98) --weight-decay 0.01 --clip-norm 1.0
    --lr 0.001 --lr-scheduler inverse_sqrt --warmup-updates 50 --warmup-init-lr 1e-7
    --seed 1 --validate-interval 1000 --no-save --log-format json --log-interval 5
    --num-workers 0 """
CHUNKED = "--criterion chunked_cross_entropy"
EVIDENCE = f"--batch-size 32 --log-interval 10 --max-update UPDATES {CHUNKED}"
ROWS = {
    "t2": "--arch transnormer_t2",
    "t1": "--arch transnormer_t1",
    "vanilla": "--arch vanilla_transformer",
    # configs/tables/table4.yaml
    "vanilla_with_lrpe": "--arch linear_transformer --attention-types diag*6 "
    "--block-size 512 --relative-position lrpe",
    "1+elu": "--arch linear_transformer",
}
PEER = """--arch transformer_lm --decoder-embed-dim 512 --decoder-ffn-embed-dim 2048
    --decoder-layers 6 --decoder-attention-heads 8 --decoder-normalize-before
    --share-decoder-input-output-embed --dropout 0.1"""
# what is added to try a command on a CPU
ONE_TEST = "-n 2 tests/benchmarks/test_measure.py -k clock"
FEW = "--cpu --tokens-per-sample 32 --batch-size 2 --max-update 2 --log-interval 1"
NARROW = f"{FEW} --embed-dim 32 --ffn-dim 32 --num-heads 2"
SHORT = "--tokens 64 --lengths 64 --check-length 64"
SMALL = "--width 32 --heads 2 --layers 2"


class Command(NamedTuple):
    """A step of a stage.

    share: of the stage's time; shares come to more than 1, since most steps end by
    themselves. tiny: what is added on a CPU; None where only a GPU can run it.
    """

    name: str
    share: float
    words: str
    tiny: str | None = None


STAGES = {
    "first": [
        Command(
            "graph_tests", 0.2, f"{TESTS} -n 4 -k 'graph or packed_product'", ONE_TEST
        ),
        Command(
            "smoke",
            0.2,
            "-m benchmarks smoke --device DEVICE --tokens 8192 --ops rms_norm "
            "linear_attention block_attention gated_silu feature_map_and_lrpe",
            f"{SHORT} --ops rms_norm",
        ),
        Command("verify", 0.33, f"{VERIFY} bfloat16 float16 float32"),
        Command(
            "ops",
            0.22,
            f"{BENCH.format('ops')} --seconds 0.02 --quick --ops norm_attention "
            "linear_attention --tokens 65536 --lengths 512 2048 8192 65536",
            SHORT,
        ),
        Command(
            "training_step",
            0.22,
            f"{BENCH.format('training_step')} --seconds 0.3 --dtype bfloat16 "
            "--backends triton torch --variants T2 --parts stack model --tokens 8192 "
            "--lengths 512 8192 --quadratic-limit-gib 2",
            f"--backends torch --tokens 64 --lengths 64 {SMALL} --vocabulary 50",
        ),
        # nearly all of it compiles
        Command(
            "gpu_tests",
            0.6,
            f"{TESTS} -n 10 --dist worksteal --maxfail 60 -k 'not more_elements'",
            ONE_TEST,
        ),
    ],
    "second": [
        Command("t2_auto", 0.2, f"{TRAIN} {ROWS['t2']}", NARROW),
        Command(
            "t2_graphs", 0.15, f"{TRAIN} {ROWS['t2']} --cuda-graphs {CHUNKED}", NARROW
        ),
        Command("t2_torch", 0.15, f"{TRAIN} {ROWS['t2']} --backend torch", NARROW),
        Command(
            "transformer_lm",
            0.13,
            f"{TRAIN} {PEER}",
            f"{FEW} --decoder-embed-dim 32 --decoder-ffn-embed-dim 32",
        ),
        Command(
            "update_cost",
            0.17,
            f"{BENCH.format('update_cost')} --seconds 0.3 --dtype bfloat16 --models "
            "'TransNormer T2' 'fairseq transformer_lm, SDPA' --batches 8192x512 --ways "
            "\"fairseq's\" ours 'ours, layers as CUDA graphs'",
            "--vocabulary 50 --batches 8x8 --models 'TransNormer T2'",
        ),
        Command(
            "ops_peers",
            0.4,
            f"{BENCH.format('ops')} --seconds 0.01 --ops linear_attention "
            "published_shapes --compiled-lengths --quadratic-limit-gib 0.01 --tokens "
            "65536 --lengths 512 1024 2048 4096 8192 16384 65536",
            f"{SHORT} --ops linear_attention",
        ),
        Command(
            "ops_blocks",
            0.1,
            f"{BENCH.format('ops')} --seconds 0.01 --quick --ops block_attention "
            "--tokens 65536 --lengths 512 4096 16384",
            SHORT,
        ),
        Command("large_tests", 0.2, f"{TESTS} -k more_elements", ONE_TEST),
        Command(
            "generation_cost",
            0.15,
            f"{BENCH.format('generation_cost')} --seconds 0.2 --dtype bfloat16 "
            "--backends triton torch --contexts 64 4096",
            f"--backends torch --contexts 8 {SMALL} --vocabulary 50",
        ),
    ],
    "gates": [
        Command(
            "gates",
            0.6,
            BENCH.format("gates"),
            f"{SMALL} --shapes 2x16 --ways 'our kernels' \"fairseq's layers, SDPA\"",
        ),
        Command(
            "bidirectional",
            0.15,
            f"{BENCH.format('ops')} --seconds 0.02 --quick --ops "
            "bidirectional_linear_attention --tokens 16384 --lengths 512 4096",
            SHORT,
        ),
        Command(
            "forms",
            0.25,
            f"{BENCH.format('launch_sweep')} --sizes 8x512 64x512 64x1024 256x512 "
            "16x4096 8x16384",
        ),
        Command("launch_sweep", 0.6, BENCH.format("launch_sweep")),
    ],
    "evidence": [
        Command("verify", 0.1, f"{VERIFY} bfloat16"),
        *(
            Command(
                f"{name}_seed{seed}",
                0.095,
                f"{TRAIN} {EVIDENCE} {row} --seed {seed}",
                NARROW,
            )
            for seed in (1, 2)
            for name, row in ROWS.items()
        ),
    ],
}
TRAINS = ("second", "evidence")


class Target(NamedTuple):
    """The least of a value, at every length from ``first`` on, under CUDA graphs.

    value: (our row, the rows of its case, that forward alone) to it, or None.
    """

    what: str
    least: float
    op: str
    variant: str
    value: Callable[[dict, list[dict]], float | None]
    mode: str = "forward and backward"
    first: int = 1


def _median(row: dict) -> float:
    return statistics.median(row["seconds"])


def beside(*names: str) -> Callable:
    """The time over ours of the fastest right peer whose name begins like these."""

    def value(ours: dict, rows: list[dict], bandwidth: float) -> float | None:
        peers = [
            _median(row)
            for row in rows
            if row["mode"] == ours["mode"]
            and row["provider"].startswith(names)
            and not row["wrong"]
        ]
        return min(peers) / _median(ours) if peers else None

    return value


def forward_share(ours: dict, rows: list[dict], bandwidth: float) -> float:
    """Share of the copy bandwidth in which each input and output is moved once."""
    return ours["least_bytes"] / _median(ours) / bandwidth


def backward_share(ours: dict, rows: list[dict], bandwidth: float) -> float | None:
    """The same for what forward and backward take beyond the forward."""
    for row in rows:
        if row["provider"] == ours["provider"] and row["mode"] == "forward":
            seconds = _median(ours) - _median(row)
            moved = ours["least_bytes"] - row["least_bytes"]
            return moved / seconds / bandwidth if seconds > 0 else None
    return None


_LINEAR = ("linear_attention", "causal")
TARGETS = [
    Target(
        "causal linear attention beside the fastest of fla and lightning",
        *(1.3, *_LINEAR, beside("fla ", "lightning")),
        first=512,
    ),
    Target(
        "0.10 ms over the time at B 8, T 1,024, H 8, D 64",
        *(1.0, "published_shapes", "B8 T1024 H8 D64"),
        lambda ours, rows, bandwidth: 1e-4 / _median(ours),
    ),
    Target(
        "share of the bandwidth, causal linear attention, forward",
        *(0.6, *_LINEAR, forward_share, "forward", 4096),
    ),
    Target(
        "share of the bandwidth, causal linear attention, backward",
        *(0.5, *_LINEAR, backward_share),
        first=4096,
    ),
    Target(
        "DiagAttention beside the fastest of SDPA on blocks",
        *(1.5, "block_attention", "softmax causal", beside("SDPA ")),
    ),
]


def read_targets(output: str, path: Path) -> list[dict]:
    """Where the rows of ``benchmarks ops`` at ``path`` stand: the worst over lengths."""
    run = json.loads(path.read_text())
    bandwidth = run["settings"]["copy_bandwidth"]
    rows = [r for r in run["measurements"] if "seconds" in r]
    rows = [row for row in rows if row["timing"] == "CUDA graph"]
    found = []
    for target in TARGETS:
        of_op = [r for r in rows if (r["op"], r["variant"]) == target[2:4]]
        values = {}
        for ours in of_op:
            mine = ours["provider"] == "ours (triton)" and ours["mode"] == target.mode
            if mine and ours["length"] >= target.first:
                case = [row for row in of_op if row["length"] == ours["length"]]
                value = target.value(ours, case, bandwidth)
                if value is not None:
                    # wrong results meet nothing
                    values[ours["length"]] = 0.0 if ours["wrong"] else value
        if values:
            length = min(values, key=values.get)
            worst = {"measured": round(values[length], 3), "length": length}
            met = values[length] >= target.least
            found.append(
                {"target": target.what, "least": target.least, **worst, "met": met}
            )
    return found


def read_tests(output: str) -> dict:
    """Counts and failed names in what ``pytest -v`` printed, be it cut off.

    A JUnit file is no better: pytest-xdist, when interrupted, may leave none.

    Raises:
        ValueError: no test ran.
    """
    # with processes that share the tests, the status comes first
    pairs = re.findall(rf"^(?:\[gw\d+\] \[.*\] )({STATUS}) (\S+)", output, re.M)
    pairs += [
        pair[::-1] for pair in re.findall(rf"^(\S+::\S.*?) ({STATUS})\b", output, re.M)
    ]
    counts = Counter(status.lower() for status, _ in pairs)
    if counts.total() == counts["skipped"]:
        raise ValueError(f"no test ran: {dict(counts)}")
    failed = [name for status, name in pairs if status in ("FAILED", "ERROR")]
    return {**counts, "names": sorted(failed)}


def read_training(output: str, name: str, path: Path) -> dict:
    """Losses (bits a token), speed and memory; also added to training.json."""
    from fairseq_transnormer.analysis.training_log import parse_training_log

    records = parse_training_log(output)
    inner, valid = records["train_inner"], records["valid"]
    # the second half only: kernels are compiled in the first
    later = inner[len(inner) // 2 :]
    result = {
        "first_loss": float(inner[0]["loss"]),
        "last_loss": float(inner[-1]["loss"]),
        "valid_loss": float(valid[-1]["valid_loss"]) if valid else None,
        "tokens_a_second": statistics.median(float(r["wps"]) for r in later),
        "least_gb_free": min(
            (float(r["gb_free"]) for r in inner if "gb_free" in r), default=None
        ),
        "updates": int(inner[-1]["num_updates"]),
    }
    curve = [[int(r["num_updates"]), float(r["loss"])] for r in inner]
    trainings = json.loads(path.read_text()) if path.exists() else {}
    trainings[name] = result | {"loss_by_update": curve}
    write_json(path, trainings)
    return result


def check_steps(stage: str, out: Path, scratch: Path, options) -> list[Step]:
    """The steps of a stage.

    Args:
        out: folder of results.
        scratch: of what does not stay.
        options: data, updates, tiny.
    """
    values = {
        "DATA": str(options.data),
        "PLUGIN": str(ROOT / "fairseq_transnormer"),
        "DEVICE": "cpu" if options.tiny else "cuda",
        "UPDATES": str(options.updates),
    }
    environment = {
        "PYTHONUNBUFFERED": "1",
        # a trial that was cut off counts against its kernels, here alone
        "FAIRSEQ_TRANSNORMER_CACHE": str(scratch / "verdicts"),
    }
    steps = []
    for name, share, command, tiny in STAGES[stage]:
        if (options.tiny and tiny is None) or name not in (options.steps or [name]):
            continue
        words = shlex.split(f"{command} {tiny if options.tiny else ''}")
        words = [sys.executable, *(values.get(word, word) for word in words)]
        step = Step(name, share, words, environment=environment)
        if words[2] == "pytest":
            step.read = read_tests
        elif words[2] == "fairseq_cli.train":
            words += ["--save-dir", str(scratch / name)]
            step.read = partial(read_training, name=name, path=out / "training.json")
        else:
            words += ["--output", str(path := out / f"{name}.json")]
            if words[3] == "ops":
                step.read = partial(read_targets, path=path)
        steps.append(step)
    return steps


def describe_device(tiny: bool) -> dict:
    """Device and versions.

    Raises:
        RuntimeError: there is no CUDA device, or no torch; the message says which.
    """
    try:
        import torch
    except ImportError as error:
        raise RuntimeError(f"torch cannot be imported: {error}") from error
    if not (tiny or torch.cuda.is_available()):
        raise RuntimeError(f"torch {torch.__version__} sees no CUDA device")
    from .measure import describe

    return describe(torch.device("cpu" if tiny else "cuda"))


def pack(folder: Path, target: Path) -> None:
    """All files of a folder, as the old or the new archive at any moment."""

    def write(file) -> None:
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            archive.add(folder, arcname=target.stem)

    write_whole(target, write)


def run(options, environment: dict) -> bool:
    """Run a stage; whether all of its steps passed."""
    begin, lines = time.monotonic(), []
    packed = options.out / f"{options.stage}.tgz"
    summary = {"stage": options.stage, "environment": environment}

    def note(record: dict) -> None:
        line = f"{time.monotonic() - begin:.0f} s: {record['step']}: {record['status']}"
        if "reason" in record:
            line += f": {record['reason']}"
        lines.append(line)
        if record["step"].startswith("ops"):
            for each in record.get("result") or []:
                lines.append("    {target}: {measured}, least {least}".format(**each))
        print(line, flush=True)
        packed.with_suffix(".txt").write_text("\n".join(lines) + "\n")
        pack(work, packed)

    with tempfile.TemporaryDirectory() as folder:
        work, scratch = Path(folder) / "results", Path(folder) / "scratch"
        work.mkdir()
        steps = check_steps(options.stage, work, scratch, options)
        try:
            return run_steps(steps, work, options.seconds, summary, note)
        except KeyboardInterrupt:
            pack(work, packed)
            raise


def gpu_check(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = command_parser("benchmarks gpu_check", __doc__)
    add = parser.add_argument
    add("--stage", choices=STAGES, required=True)
    add("--out", type=output_folder, required=True, metavar="DIR")
    add("--seconds", type=positive_number, default=570, help="for the stage (570)")
    add("--data", type=Path, help="binary data of language_modeling, to train on")
    add("--steps", nargs="+", metavar="STEP", help="of the stage (all)")
    add("--updates", type=positive_integer, default=300, help="of evidence (300)")
    add(
        "--tiny",
        action="store_true",
        help="tiny sizes on the CPU: whether each command still runs, nothing else",
    )
    options = parser.parse_args(arguments)
    options.out = options.out.resolve()
    names = [name for name, *_ in STAGES[options.stage]]
    if unknown := set(options.steps or ()) - set(names):
        parser.error(f"--steps {' '.join(unknown)}; allowed: {', '.join(names)}")
    packed = options.out / f"{options.stage}.tgz"
    if packed.exists():
        parser.error(
            f"--out {options.out}: {packed.name} is there; allowed: a new folder"
        )
    if options.stage in TRAINS:
        if options.data is None or not (options.data / "dict.txt").is_file():
            parser.error(f"--data {options.data}; needed: a folder with dict.txt")
        options.data = options.data.resolve()
    try:
        environment = describe_device(options.tiny)
    except RuntimeError as error:
        print(f"gpu_check: nothing is measured: {error}", file=sys.stderr)
        return 3
    return 0 if run(options, environment) else 1
