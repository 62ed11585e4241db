"""Checks this package on a CUDA device that is rented for minutes, a stage at a time.

stages, each of use alone, what matters most first:
  first     do the kernels run and compute rightly, how fast are they: smoke, verify,
            ops compared with SDPA, a training step, tests/gpu
  second    trainings of 100 updates, a whole update, the ops and their peers, tests
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
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fairseq_transnormer.argument_types import positive_integer, positive_number
from fairseq_transnormer.cli import command_parser, output_folder
from fairseq_transnormer.data.whole_files import write_json, write_whole

from .steps import ROOT, Step, run_steps

STATUS = "PASSED|FAILED|SKIPPED|ERROR"
# words of the table below, and what they stand for
WORDS = {
    "VERIFY": """-m fairseq_transnormer verify --again --workers 12 --arch
        transnormer_t2 transnormer_t1 linear_transformer --dtype""",
    "TESTS": "-m pytest -v -p no:cacheprovider tests/gpu",
    "LIMITS": "--device DEVICE --time-limit SECONDS --least-repeats 5",
    "TRAIN": """-m fairseq_cli.train DATA --user-dir PLUGIN
        --task language_modeling --tokens-per-sample 512 --sample-break-mode none
        --required-batch-size-multiple 1 --batch-size 16 --bf16 --max-update 100
        --optimizer fused_adam --adam-betas (0.9,0.98) --weight-decay 0.01
        --clip-norm 1.0 --lr 0.001 --lr-scheduler inverse_sqrt --warmup-updates 50
        --warmup-init-lr 1e-7 --seed 1 --validate-interval 1000 --no-save
        --log-format json --log-interval 5 --num-workers 0""",
    "CHUNKED": "--criterion chunked_cross_entropy",
    "EVIDENCE": "--batch-size 32 --log-interval 10 --max-update UPDATES CHUNKED",
    "ARCH_T2": "--arch transnormer_t2",
    "TRANSFORMER": """--arch transformer_lm --decoder-embed-dim 512
        --decoder-ffn-embed-dim 2048 --decoder-layers 6 --decoder-attention-heads 8
        --decoder-normalize-before --share-decoder-input-output-embed --dropout 0.1""",
    # to try a command on a CPU
    "ONE_TEST": "-n 2 tests/benchmarks/test_measure.py -k clock",
    "FEW": """--cpu --tokens-per-sample 32 --batch-size 2 --max-update 2
        --log-interval 1""",
    "NARROW": "FEW --embed-dim 32 --ffn-dim 32 --num-heads 2",
    "SHORT": "--tokens 64 --lengths 64 --check-length 64",
    "SMALL": "--width 32 --heads 2 --layers 2",
}
# step, its share of the stage's time, command, and what is added to try it on a CPU,
# "-" where only a GPU can run it. Shares come to more than 1: most end by themselves
STAGES = {
    "first": """
graph_tests 0.2 | TESTS -n 4 -k 'graph or packed_product' | ONE_TEST
smoke 0.2 | -m benchmarks smoke --device DEVICE --tokens 8192 --ops rms_norm
    linear_attention block_attention gated_silu feature_map_and_lrpe
    | SHORT --ops rms_norm
verify 0.33 | VERIFY bfloat16 float16 float32 | -
ops 0.22 | -m benchmarks ops LIMITS --seconds 0.02 --quick --ops norm_attention
    linear_attention --tokens 65536 --lengths 512 2048 8192 65536 | SHORT
training_step 0.22 | -m benchmarks training_step LIMITS --seconds 0.3 --dtype bfloat16
    --backends triton torch --variants T2 --parts stack model --tokens 8192
    --lengths 512 8192 --quadratic-limit-gib 2
    | --backends torch --tokens 64 --lengths 64 SMALL --vocabulary 50
gpu_tests 0.6 | TESTS -n 10 --dist worksteal --maxfail 60 -k 'not more_elements'
    | ONE_TEST
""",
    "second": """
t2_auto 0.2 | TRAIN ARCH_T2 | NARROW
t2_graphs 0.15 | TRAIN ARCH_T2 --cuda-graphs CHUNKED | NARROW
t2_torch 0.15 | TRAIN ARCH_T2 --backend torch | NARROW
transformer_lm 0.13 | TRAIN TRANSFORMER
    | FEW --decoder-embed-dim 32 --decoder-ffn-embed-dim 32
update_cost 0.17 | -m benchmarks update_cost LIMITS --seconds 0.3 --dtype bfloat16
    --models 'TransNormer T2' 'fairseq transformer_lm, SDPA' --batches 8192x512
    --ways "fairseq's" ours 'ours, layers as CUDA graphs'
    | --vocabulary 50 --batches 8x8 --models 'TransNormer T2'
ops_peers 0.4 | -m benchmarks ops LIMITS --seconds 0.01 --ops linear_attention
    --quadratic-limit-gib 0.01 --tokens 65536
    --lengths 512 1024 2048 4096 8192 16384 65536 | SHORT
ops_blocks 0.1 | -m benchmarks ops LIMITS --seconds 0.01 --quick
    --ops block_attention --tokens 65536 --lengths 512 4096 16384 | SHORT
large_tests 0.2 | TESTS -k more_elements | ONE_TEST
generation_cost 0.15 | -m benchmarks generation_cost LIMITS --seconds 0.2
    --dtype bfloat16 --backends triton torch --contexts 64 4096
    | --backends torch --contexts 8 SMALL --vocabulary 50
""",
    "gates": """
gates 0.6 | -m benchmarks training_step LIMITS --dtype bfloat16 --backends triton torch
    --variants T2 --ways eager cuda_graphs compiled --parts stack --tokens 8192
    --lengths 512 8192
    | --backends torch --ways eager --tokens 64 --lengths 64 SMALL
bidirectional 0.15 | -m benchmarks ops LIMITS --seconds 0.02 --quick
    --ops bidirectional_linear_attention --tokens 16384 --lengths 512 4096 | SHORT
forms 0.25 | -m benchmarks launch_sweep LIMITS
    --sizes 8x512 64x512 64x1024 256x512 16x4096 8x16384 | -
launch_sweep 0.6 | -m benchmarks launch_sweep LIMITS | -
""",
    "evidence": """
verify 0.1 | VERIFY bfloat16 | -
""",
}
ROWS = {
    "t2": "ARCH_T2",
    "t1": "--arch transnormer_t1",
    "vanilla": "--arch vanilla_transformer",
    # configs/tables/table4.yaml
    "vanilla_with_lrpe": "--arch linear_transformer --attention-types diag*6 "
    "--block-size 512 --relative-position lrpe",
    "1+elu": "--arch linear_transformer",
}
for _seed in (1, 2):
    for _name, _row in ROWS.items():
        _words = f"TRAIN EVIDENCE {_row} --seed {_seed}"
        STAGES["evidence"] += f"{_name}_seed{_seed} 0.095 | {_words} | NARROW\n"
TRAINS = ("second", "evidence")


def table_of(stage: str) -> Iterator[tuple[str, float, str, str]]:
    """Name, share, command and what is added on a CPU, of each step."""
    for line in re.sub(r"\n +", " ", STAGES[stage]).strip().splitlines():
        first, command, tiny = (part.strip() for part in line.split("|"))
        name, share = first.split()
        yield name, float(share), command, tiny


def expanded(words: str, values: dict[str, str]) -> list[str]:
    """The words of a command, those of ``WORDS`` and of ``values`` replaced."""
    found = []
    for word in shlex.split(words):
        if word in WORDS:
            found += expanded(WORDS[word], values)
        else:
            found.append(values.get(word, word))
    return found


# the least of a value at every length from the first on, under CUDA graphs: what,
# least, op, variant, mode, first length, peers, or None for a share of the bandwidth
BOTH = "forward and backward"
_LINEAR = ("linear_attention", "causal")
TARGETS = [
    ("causal linear attention over the fastest of fla and lightning", 1.3, *_LINEAR,
     BOTH, 512, ("fla ", "lightning")),
    ("causal linear attention, forward, share of the bandwidth", 0.6, *_LINEAR,
     "forward", 4096, None),
    ("causal linear attention, backward, share of the bandwidth", 0.5, *_LINEAR, BOTH,
     4096, None),
    ("DiagAttention over the fastest of SDPA on blocks", 1.5, "block_attention",
     "softmax causal", BOTH, 1, ("SDPA ",)),
]  # fmt: skip
OURS = "ours (triton)"


def read_targets(output: str, path: Path) -> list[dict]:
    """Where the rows of ``benchmarks ops`` at ``path`` stand: the worst over lengths.

    A peer whose results are wrong does not count, and wrong results of ours meet
    nothing. The backward pass is what forward and backward take beyond the forward.
    """
    run, found = json.loads(path.read_text()), []
    cases: dict[tuple, dict] = {}
    for row in run["measurements"]:
        if "seconds" in row and row["timing"] == "CUDA graph":
            time = statistics.median(row["seconds"])
            place = row["op"], row["variant"], row["length"], row["mode"]
            wrong = row["wrong"]
            cases.setdefault(place, {})[row["provider"]] = (
                time,
                row["least_bytes"],
                wrong,
            )
    for what, least, op, variant, mode, first, peers in TARGETS:
        values = {}
        for (*place, length, of_mode), case in cases.items():
            if place != [op, variant] or of_mode != mode or OURS not in case:
                continue
            time, moved, wrong = case[OURS]
            if peers is None:
                forward = cases.get((op, variant, length, "forward"), {}).get(OURS)
                if mode == BOTH and forward:
                    time, moved = time - forward[0], moved - forward[1]
                value = moved / time / run["settings"]["copy_bandwidth"]
            else:
                times = [
                    peer
                    for name, (peer, _, is_wrong) in case.items()
                    if name.startswith(peers) and not is_wrong
                ]
                value = min(times) / time if times else None
            if value is not None and length >= first:
                values[length] = 0.0 if wrong else value
        if values:
            at, worst = min(values.items(), key=lambda item: item[1])
            found.append({"target": what, "least": least, "length": at})
            found[-1] |= {"measured": round(worst, 3), "met": worst >= least}
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
    for name, share, command, tiny in table_of(stage):
        if (options.tiny and tiny == "-") or name not in (options.steps or [name]):
            continue
        words = f"{command} {tiny if options.tiny else ''}"
        words = [sys.executable, *expanded(words, values)]
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
                lines.append(
                    "    {target}: {measured}, at least {least}".format(**each)
                )
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
    names = [name for name, *_ in table_of(options.stage)]
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
