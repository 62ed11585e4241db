"""A GPU that is rented for minutes: stages of commands, each with a time limit."""

from __future__ import annotations

import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import defaultdict
from functools import partial
from math import inf
from pathlib import Path
from typing import Literal, NamedTuple

from fairseq_transnormer.data.whole_files import write_json, write_whole
from fairseq_transnormer.outputs import OutputFolder

from .options import chosen

ROOT = Path(__file__).resolve().parents[1]
LOG_TAIL = 2000  # characters of a failed step's output for the summary
INTERRUPT_S = 15  # for a step to end by itself when its time is over
START_S = 12  # for one to start and to end, which SECONDS of a command leaves out
# words of the table below, and what they stand for
WORDS = {
    "VERIFY": """-m fairseq_transnormer verify --again --workers 12 --arch
        transnormer_t2 transnormer_t1 linear_transformer --dtype""",
    "TESTS": "-m pytest -v -p no:cacheprovider tests/gpu",
    "LIMITS": "--device cuda --time-limit SECONDS --least-repeats 5",
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
}
# step, its share of the stage's time, command. Shares come to more than 1: most end by
# themselves
STAGES = {
    "first": """
graph_tests 0.2 | TESTS -n 4 -k 'graph or packed_product'
smoke 0.2 | -m benchmarks ops LIMITS --seconds 0.001 --quick --tokens 8192
    --lengths 512 --ops rms_norm linear_attention block_attention gated_silu
    feature_map_and_lrpe
verify 0.33 | VERIFY bfloat16 float16 float32
ops 0.22 | -m benchmarks ops LIMITS --seconds 0.02 --quick --ops norm_attention
    linear_attention --tokens 65536 --lengths 512 2048 8192 65536
training_step 0.22 | -m benchmarks training_step LIMITS --seconds 0.3 --dtype bfloat16
    --backends triton torch --variants T2 --parts stack model --tokens 8192
    --lengths 512 8192 --quadratic-limit-gib 2
gpu_tests 0.6 | TESTS -n 10 --dist worksteal --maxfail 60 -k 'not more_elements'
""",
    "second": """
t2_auto 0.2 | TRAIN ARCH_T2
t2_graphs 0.15 | TRAIN ARCH_T2 --cuda-graphs
t2_torch 0.15 | TRAIN ARCH_T2 --backend torch
transformer_lm 0.13 | TRAIN TRANSFORMER
update_cost 0.17 | -m benchmarks update_cost LIMITS --seconds 0.3 --dtype bfloat16
    --models 'TransNormer T2' 'fairseq transformer_lm, SDPA' --batches 8192x512
    --ways "fairseq's" ours 'ours, layers as CUDA graphs'
ops_peers 0.4 | -m benchmarks ops LIMITS --seconds 0.01 --ops linear_attention
    --quadratic-limit-gib 0.01 --tokens 65536
    --lengths 512 1024 2048 4096 8192 16384 65536
ops_blocks 0.1 | -m benchmarks ops LIMITS --seconds 0.01 --quick
    --ops block_attention --tokens 65536 --lengths 512 4096 16384
large_tests 0.2 | TESTS -k more_elements
generation_cost 0.15 | -m benchmarks generation_cost LIMITS --seconds 0.2
    --dtype bfloat16 --backends triton torch --contexts 64 4096
""",
    "gates": """
gates 0.6 | -m benchmarks training_step LIMITS --dtype bfloat16 --backends triton torch
    --variants T2 --ways eager cuda_graphs compiled --parts stack --tokens 8192
    --lengths 512 8192
bidirectional 0.15 | -m benchmarks ops LIMITS --seconds 0.02 --quick
    --ops bidirectional_linear_attention --tokens 16384 --lengths 512 4096
forms 0.25 | -m benchmarks launch_sweep LIMITS
    --sizes 8x512 64x512 64x1024 256x512 16x4096 8x16384
launch_sweep 0.6 | -m benchmarks launch_sweep LIMITS
""",
    "evidence": """
verify 0.1 | VERIFY bfloat16
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
        STAGES["evidence"] += f"{_name}_seed{_seed} 0.095 | {_words}\n"
TRAINS = ("second", "evidence")


class Step(NamedTuple):
    """A command; share: the part of all seconds that it may take."""

    name: str
    share: float
    command: list[str]


def steps_of(stage: str, folder: Path, data: Path | None, updates: int) -> list[Step]:
    """A stage's steps; they write to ``results`` and ``scratch`` of a folder."""
    values = {"DATA": str(data), "UPDATES": str(updates)}
    values["PLUGIN"] = str(ROOT / "fairseq_transnormer")
    steps = []
    for line in re.sub(r"\n +", " ", STAGES[stage]).strip().splitlines():
        first, _, command = line.partition(" | ")
        name, share = first.split()
        words = [sys.executable, *expanded(command, values)]
        if words[2] == "fairseq_cli.train":
            words += ["--save-dir", str(folder / "scratch" / name)]
        elif words[2] != "pytest":
            words += ["--output", str(folder / "results" / f"{name}.json")]
        steps.append(Step(name, float(share), words))
    return steps


def expanded(words: str, values: dict[str, str]) -> list[str]:
    """The words of a command, those of ``WORDS`` and of ``values`` replaced."""
    found = []
    for word in shlex.split(words):
        if word in WORDS:
            found += expanded(WORDS[word], values)
        else:
            found.append(values.get(word, word))
    return found


# op, variant, mode -> what is asked for at every length from the first on, under CUDA
# graphs: the least quotient, the first length, and the peers whose fastest it is of, or
# None: the least share of the bandwidth
FORWARD, BOTH = "forward", "forward and backward"
LINEAR = "linear_attention", "causal"
TARGETS = {
    (*LINEAR, BOTH): (1.3, 512, ("fla ", "lightning")),
    (*LINEAR, FORWARD): (0.6, 4096, None),
    (*LINEAR, "backward"): (0.5, 4096, None),
    ("block_attention", "softmax causal", BOTH): (1.5, 1, ("SDPA ",)),
}
OURS = "ours (triton)"


def read_targets(path: Path) -> list[dict]:
    """Where the rows of ``benchmarks ops`` at ``path`` stand: the worst over lengths.

    A peer whose results are wrong does not count, and wrong results of ours meet
    nothing. The backward pass is what forward and backward take beyond the forward.
    """
    run, found = json.loads(path.read_text()), []
    # op, variant, mode -> length -> provider -> seconds (infinite: wrong) and bytes
    cases: dict[tuple, dict] = defaultdict(lambda: defaultdict(dict))
    for row in run["measurements"]:
        if "seconds" in row and row["timing"] == "CUDA graph":
            seconds = inf if row["wrong"] else statistics.median(row["seconds"])
            lengths = cases[row["op"], row["variant"], row["mode"]]
            lengths[row["length"]][row["provider"]] = seconds, row["least_bytes"]
    for length, case in cases[(*LINEAR, BOTH)].items():
        forward = cases[(*LINEAR, FORWARD)][length]
        if OURS in case and OURS in forward:
            (a, x), (b, y) = forward[OURS], case[OURS]
            beyond = inf if inf in (a, b) else b - a
            cases[(*LINEAR, "backward")][length][OURS] = beyond, y - x
    for kind, (least, first, peers) in TARGETS.items():
        values = {}
        for length, case in cases[kind].items():
            if length < first or OURS not in case:
                continue
            seconds, moved = case[OURS]
            if peers is None:
                values[length] = moved / seconds / run["settings"]["copy_bandwidth"]
            elif times := [case[name][0] for name in case if name.startswith(peers)]:
                values[length] = min(times) / seconds
        if values:
            at, worst = min(values.items(), key=lambda item: item[1])
            found.append({"target": ", ".join(kind), "least": least, "length": at})
            found[-1] |= {"measured": round(worst, 3), "met": worst >= least}
    return found


def run_step(step: Step, limit: float, work: Path, environment: dict) -> dict:
    """What came out of a step: seconds, status, and why it failed."""
    begin, log = time.monotonic(), work / f"{step.name}.log"
    # ends the step with its children; interrupted, pytest still writes what it has
    words = ["timeout", "--signal=INT", f"--kill-after={INTERRUPT_S}", f"{limit:.1f}"]
    measured = f"{max(1.0, limit - START_S):.0f}"
    words += [measured if word == "SECONDS" else word for word in step.command]
    options = {"cwd": ROOT, "env": os.environ | environment}
    options |= {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
    with log.open("wb") as file:
        process = subprocess.Popen(words, stdout=file, **options)
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.terminate()  # it hands this on
            raise
    seconds = round(time.monotonic() - begin, 1)
    if code == 0:
        return {"seconds": seconds, "status": "passed"}
    reason, status = f"exit code {code}", "failed"
    if seconds >= limit:
        reason, status = f"not ready after {limit:.0f} s", "timeout"
    output = log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:]
    return {"seconds": seconds, "status": status, "reason": reason, "output": output}


def run_steps(
    steps: list[Step], seconds: float, packed: Path, folder: Path, summary: dict
) -> bool:
    """Run the steps one after the other; whether all of them passed.

    After each one the archive, its summary.json and the text file's lines are written
    anew. So a run that is cut off has reported what it knew.

    Args:
        steps: in this order.
        seconds: for all steps together.
        packed: archive of ``folder/results``, where the steps write.
        summary: what else summary.json holds.
    """
    begin, lines, work = time.monotonic(), [], folder / "results"
    records = summary["steps"] = []
    paths = filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)])
    environment = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    # a trial that was cut off counts against its kernels, here alone
    environment["FAIRSEQ_TRANSNORMER_CACHE"] = str(folder / "scratch" / "verdicts")
    for step in steps:
        left = seconds - INTERRUPT_S - (time.monotonic() - begin)
        limit = min(step.share * seconds, left)
        record = {"step": step.name, "command": step.command, "limit_s": round(limit)}
        records.append(record)
        if limit < 1:
            record |= {"status": "skipped", "reason": "no time is left"}
        else:
            record |= run_step(step, limit, work, environment)
        line = f"{time.monotonic() - begin:.0f} s: {step.name}: {record['status']}"
        line += f": {record['reason']}" if "reason" in record else ""
        print(line, flush=True)
        lines.append(line)
        measured = work / f"{step.name}.json"
        if step.name.startswith("ops") and measured.exists():
            record["targets"] = read_targets(measured)
            text = "    {target}: {measured}, at least {least}"
            lines += [text.format(**each) for each in record["targets"]]
        write_json(work / "summary.json", summary)
        packed.with_suffix(".txt").write_text("\n".join(lines) + "\n")
        write_whole(packed, partial(pack, work, packed.stem))
    return all(record["status"] == "passed" for record in records)


def pack(folder: Path, name: str, file) -> None:
    """Write an archive of all files of a folder."""
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        archive.add(folder, arcname=name)


def gpu_check(
    *,
    stage: Literal["first", "second", "gates", "evidence"],
    out: OutputFolder,
    seconds: float = 570,
    data: Path | None = None,
    steps: tuple[str, ...] = (),
    updates: int = 300,
) -> int:
    """Check this package on a CUDA device that is rented for minutes, stage by stage.

    Each stage is useful alone:

    * first: correctness and speed of the kernels;
    * second: trainings of 100 updates, a whole update, the ops and their peers, the
      largest tensors, generation;
    * gates: what a kernel has to beat to stay;
    * evidence: Table 4's decoders at the paper's width, two seeds, --updates each.

    DIR gets STAGE.txt with a line for each step, and STAGE.tgz. The archive has
    summary.json (device, versions, status and time of each step), logs, and measured
    values as JSON. Both are complete at any time. Each step has a time limit. A failed
    step does not stop the others.

    Exit code: 0 all steps passed, 1 some did not, 2 wrong usage, 3 no CUDA device.

    Args:
        stage: to run.
        out: folder of what comes out.
        seconds: for the stage.
        data: binary data of language_modeling, to train on.
        steps: of the stage; all by default.
        updates: of evidence.
    """
    packed = out.resolve() / f"{stage}.tgz"
    if packed.exists():
        raise ValueError(f"--out {out}: {packed.name} is there; allowed: a new folder")
    if stage in TRAINS:
        if data is None or not (data / "dict.txt").is_file():
            raise ValueError(f"--data {data}; needed: a folder with dict.txt")
        data = data.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "results").mkdir()
        all_steps = {step.name: step for step in steps_of(stage, folder, data, updates)}
        names = chosen("--steps", steps, all_steps)
        import torch

        from .measure import describe

        if not torch.cuda.is_available():
            reason = f"torch {torch.__version__} sees no CUDA device"
            print(f"gpu_check: nothing is measured: {reason}", file=sys.stderr)
            return 3
        summary = {"stage": stage, "environment": describe("cuda")}
        found = [all_steps[name] for name in all_steps if name in names]
        return int(not run_steps(found, seconds, packed, folder, summary))
