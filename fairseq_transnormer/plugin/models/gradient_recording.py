"""Gradient statistics of a training run, for Table 2; off unless a file is named.

``--gradient-statistics FILE`` or ``++model.gradient_statistics=FILE`` records the
gradient of every update, as the optimizer uses it. It is summed over workers and
accumulated batches, without the loss scale of fp16. It is clipped if the run clips its
norm (the Long-Range Arena's ``--clip-value`` comes after).

FILE is JSON lines. The first line names the parameter tensors and their sizes,
``{"parameters": {NAME: ENTRIES, ...}}``. Each further line has, in that order, the L2
norm and the mean of each gradient, and what the first worker had of the update:
``{"update": N, "sequences": N, "tokens": N, "norm": [...], "mean": [...]}``.
``fairseq_transnormer analyse gradient_statistics`` reads it.
"""

import functools
import json
import math
from pathlib import Path

import torch
from fairseq.distributed.utils import get_global_rank
from torch import nn

from ...data.training_records import put_earlier_aside

OURS = b'{"parameters":'  # how each file begins


def put_gradients_aside(path: Path) -> None:
    """Rename the file of an earlier run, if it is one of gradients."""
    if path.is_file():
        with path.open("rb") as file:
            is_ours = file.read(len(OURS)) == OURS
        if is_ours:
            put_earlier_aside(path.parent, path.name)


def record_gradients(model: nn.Module, task, path: str | Path) -> None:
    """Record gradients when ``task`` steps an optimizer.

    That is once per update, after they are reduced, scaled and clipped, and not after
    an overflow of fp16.
    """
    recorder, step = GradientRecorder(model, path), task.optimizer_step
    task_step = task.train_step

    @functools.wraps(task_step)
    def train_step(sample, *args, **kwargs):
        recorder.count(sample)
        return task_step(sample, *args, **kwargs)

    @functools.wraps(step)
    def optimizer_step(optimizer, model, update_num):
        if get_global_rank() == 0:
            recorder.record(optimizer, update_num + 1)
        step(optimizer, model=model, update_num=update_num)

    task.train_step, task.optimizer_step = train_step, optimizer_step


class GradientRecorder:
    """Appends one line per update to a file.

    The file and its folders are made or opened at the first update. A killed run may
    have left lines of that update and later ones, or half a line; these are cut off.
    Update 1 begins a new file, and puts that of an earlier run aside; the training loop
    does so for a run that begins later. ``model`` is not a distributed wrapper.
    """

    def __init__(self, model: nn.Module, path: str | Path):
        named = model.named_parameters()
        self.parameters = {name: p for name, p in named if p.requires_grad}
        self.path, self.file = Path(path), None
        self.sequences = self.tokens = 0

    def count(self, sample: dict) -> None:
        """Add a batch to those of the update; its tokens are those without padding."""
        if all(each.grad is None for each in self.parameters.values()):
            # its first, also after batches that were dropped, as by an overflow of fp16
            self.sequences = self.tokens = 0
        self.sequences += int(sample["nsentences"])
        self.tokens += int(sample["ntokens"])

    def record(self, optimizer, update: int) -> None:
        """Write the gradients of an update, counted from 1, that ``optimizer`` uses.

        Raises:
            ValueError: no parameter has a gradient of its own, or the file is of
                another model or program.
        """
        line = {"update": update, "sequences": self.sequences, "tokens": self.tokens}
        self.sequences = self.tokens = 0
        norms, means = self._statistics(optimizer)
        # torch's AMP comes here after an overflow, too, and does not count it
        if not all(map(math.isfinite, norms)):
            return
        if self.file is None:
            self.file = self._open(update)
        line |= {"norm": norms, "mean": means}
        self.file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self.file.flush()

    @torch.no_grad()
    def _statistics(self, optimizer) -> tuple[list[float], list[float]]:
        parameters = self.parameters.values()
        if all(parameter.grad is None for parameter in parameters):
            raise ValueError(
                "gradient_statistics: the parameters have no gradients of their own; "
                "allowed: every ddp_backend but fully_sharded"
            )
        norms, means = [], []
        for p in parameters:
            gradient = torch.zeros_like(p) if p.grad is None else p.grad
            dtype = torch.promote_types(gradient.dtype, torch.float32)
            norms.append(torch.linalg.vector_norm(gradient, dtype=dtype))
            means.append(gradient.mean(dtype=dtype))
        # fairseq's fp16 and bf16 optimizers apply the loss scale, the number of tokens
        # and clipping as a factor at their step. Others have applied them before
        factor = getattr(optimizer, "_multiply_factor", 1.0)
        values = (torch.stack(norms + means) * factor).tolist()
        values = [float(f"{value:.6g}") for value in values]
        return values[: len(norms)], values[len(norms) :]

    def _open(self, update: int):
        """The file, with only the lines of earlier updates."""
        sizes = {name: p.numel() for name, p in self.parameters.items()}
        header = json.dumps({"parameters": sizes}).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if update == 1:
            put_gradients_aside(self.path)
        file = self.path.open("a+b")
        file.seek(0)
        first = file.readline()
        if not header.startswith(first):  # a killed run may have left half of it
            file.close()
            raise ValueError(
                f"gradient_statistics={str(self.path)!r} is of another model or "
                "program; allowed: a file of this run, or a new one"
            )
        end = 0
        if first == header:
            end = len(header)
            for line in file:
                if not line.endswith(b"\n") or json.loads(line)["update"] >= update:
                    break
                end += len(line)
        file.truncate(end)
        if not end:
            file.write(header)
        return file
