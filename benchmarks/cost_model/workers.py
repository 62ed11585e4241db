"""Measure updates of one and of more workers on this CPU, which has nothing else to do.

Workers are processes over gloo with a thread each, and exchange gradients as torch's
DistributedDataParallel does; all of them together have the same sequences.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing import spawn
from torch.nn.parallel import DistributedDataParallel

from ..harness import environment, results
from ..harness.markdown import table
from ..harness.memory import METHODS, peak_bytes
from ..harness.mixed_precision import MasterAdam
from .model import Model, build, loss

FILE = "workers.json"
MODEL = Model("alm", "T2", width=256, heads=8, layers=2, vocabulary=2000, length=512)
SEQUENCES = 16
WORKERS = (1, 2, 4, 8)
ROUNDS, SAMPLES = 3, 3


def measure(file: Path) -> None:
    """Measure as many workers as there are cores for, in turns, and write the file."""
    results.require_run(file)
    cores = len(os.sched_getaffinity(0))
    rows = {
        count: MODEL._asdict() | {"workers": count, "seconds": []}
        for count in WORKERS
        if count <= cores
    }
    for _ in range(ROUNDS):
        for count, row in rows.items():
            measured = updates(count)
            row["seconds"] += measured["seconds"]
            row["pass_bytes"] = measured["pass_bytes"]
            print(f"cost_model: {count} workers", flush=True)
    results.write(
        file,
        benchmark="cost_model",
        command="python -m benchmarks cost_model --measure-workers",
        environment=environment.describe(torch.device("cpu")) | {"cores": cores},
        settings={
            "sequences": SEQUENCES,
            "threads_of_a_worker": 1,
            "clock": "wall, of the first worker",
            "memory_method": METHODS["cpu"],
        },
        measurements=list(rows.values()),
    )


def updates(workers: int) -> dict[str, object]:
    """Seconds of updates of the first of so many workers, and bytes of its pass."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(_work, (workers, folder, MODEL, SEQUENCES), nprocs=workers)
        return json.loads((Path(folder) / "measured").read_text())


def _work(rank: int, workers: int, folder: str, size: Model, sequences: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", meeting, rank=rank, world_size=workers)
    built = build(size)
    # one worker has nothing to exchange, and fairseq does not wrap its model
    model = DistributedDataParallel(built) if workers > 1 else built
    optimizer = MasterAdam(built.parameters())
    batch = sequences // workers

    def forward_and_backward() -> None:
        loss(model, size, batch).backward()

    def update() -> float:
        dist.barrier()
        begin = time.perf_counter()
        forward_and_backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - begin

    update()
    measured = {"seconds": [update() for _ in range(SAMPLES)]}
    measured["pass_bytes"] = peak_bytes(forward_and_backward, torch.device("cpu"))
    if rank == 0:
        (Path(folder) / "measured").write_text(json.dumps(measured))
    dist.destroy_process_group()


def growth(file: Path) -> str:
    """The table of a file that was measured."""
    run = results.read(file)
    sequences = run["settings"]["sequences"]
    rows, alone = [], None
    for row in run["measurements"]:
        seconds = statistics.median(row["seconds"])
        alone = alone or seconds
        rows.append(
            [
                str(row["workers"]),
                str(sequences // row["workers"]),
                f"{1e3 * seconds:.0f}",
                f"{sequences * row['length'] / seconds:,.0f}",
                f"{alone / seconds:.2f}",
                f"{row['pass_bytes'] / 1e6:.0f}",
            ]
        )
    heads = ["workers", "sequences each", "ms an update", "tokens/s"]
    heads += ["times one worker", "MB of a worker's pass"]
    first = run["measurements"][0]
    what = (
        f"{run['environment']['cpu']}, {run['environment']['cores']} cores; "
        f"{first['kind'].upper()} {first['variant']} of width {first['width']} with "
        f"{first['layers']} layers; {sequences} x {first['length']} tokens an update"
    )
    return f"{what}.\n\n{table(heads, rows)}"
