"""Gradient statistics of a training run, for Table 2; off unless a file is named.

``--gradient-statistics FILE`` or ``++model.gradient_statistics=FILE`` records the
gradient of every update: the one that the optimizer steps with, summed over workers and
accumulated batches, without the loss scale of fp16, and clipped where the run clips its
norm (the Long-Range Arena's ``--clip-value`` comes after).

FILE is JSON lines. The first names the parameter tensors and their sizes,
``{"parameters": {NAME: ENTRIES, ...}}``; each other one holds, in that order, the L2
norm and the mean of each tensor's gradient: ``{"update": N, "norm": [...], "mean":
[...]}``. ``fairseq_transnormer analyse gradient_statistics`` reads it.
"""

import functools
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import torch
from fairseq.distributed.utils import get_global_rank
from torch import nn

from ...modules.options import described


@dataclass
class GradientRecordingOptions:
    """What turns the recording on."""

    gradient_statistics: Optional[str] = described(  # noqa: UP045 (read by fairseq)
        None,
        "file for the norm and mean of each gradient at each update, JSON lines",
        training_only=True,
    )


class RecordsGradients:
    """Mixin of fairseq models: ``build_model`` switches the recording on."""

    @classmethod
    def build_model(cls, cfg, task):
        """Build the model; its training with ``task`` is recorded if ``cfg`` says."""
        model = super().build_model(cfg, task)
        path = getattr(cfg, "gradient_statistics", None)
        if path:
            record_gradients(model, task, path)
        return model


def record_gradients(model: nn.Module, task, path: str | Path) -> None:
    """Record ``model``'s gradients whenever ``task`` steps an optimizer.

    fairseq's trainer calls ``task.optimizer_step`` once an update, when the gradients
    are reduced, scaled and clipped, and not when fp16 overflowed.
    """
    recorder = GradientRecorder(model, path)
    step = task.optimizer_step

    @functools.wraps(step)
    def optimizer_step(optimizer, model, update_num):
        if get_global_rank() == 0:
            recorder.record(optimizer, update_num + 1)
        step(optimizer, model=model, update_num=update_num)

    task.optimizer_step = optimizer_step


class GradientRecorder:
    """Appends a line an update to a file.

    The file is opened at the first update. Lines of that update and of later ones,
    which a killed run may have left behind, are cut off; so is a half-written one.

    Args:
        model: the model itself, not a distributed wrapper.
        path: the file; folders are made.
    """

    def __init__(self, model: nn.Module, path: str | Path):
        self.parameters = {
            name: parameter
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }
        self.path, self.file = Path(path), None

    def record(self, optimizer, update: int) -> None:
        """Write the gradients of the update number ``update``, from 1 on.

        Args:
            optimizer: fairseq's, about to step.
            update: as in fairseq's log.

        Raises:
            ValueError: no parameter has a gradient of its own, or the file belongs to
                another model.
        """
        norms, means = self._statistics(optimizer)
        # torch's AMP comes here after an overflow, too, and does not count it
        if not all(map(math.isfinite, norms)):
            return
        if self.file is None:
            self.file = self._open(update)
        line = {"update": update, "norm": norms, "mean": means}
        self.file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self.file.flush()

    @torch.no_grad()
    def _statistics(self, optimizer) -> tuple[list[float], list[float]]:
        gradients = [p.grad for p in self.parameters.values()]
        if all(gradient is None for gradient in gradients):
            raise ValueError(
                "gradient_statistics: the parameters have no gradients of their own; "
                "allowed: every ddp_backend but fully_sharded"
            )
        norms, means = [], []
        for parameter in self.parameters.values():
            gradient = parameter.grad
            if gradient is None:
                gradient = torch.zeros_like(parameter)
            dtype = torch.promote_types(gradient.dtype, torch.float32)
            norms.append(torch.linalg.vector_norm(gradient, dtype=dtype))
            means.append(gradient.mean(dtype=dtype))
        # fairseq's fp16 and bf16 optimizers keep the loss scale, the number of tokens
        # and clipping in a factor until they step; its others have applied them
        factor = getattr(optimizer, "_multiply_factor", 1.0)
        values = (torch.stack(norms + means) * factor).tolist()
        values = [float(f"{value:.6g}") for value in values]
        return values[: len(norms)], values[len(norms) :]

    def _open(self, update: int):
        sizes = {name: p.numel() for name, p in self.parameters.items()}
        header = json.dumps({"parameters": sizes}).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = self.path.open("r+b" if self.path.exists() else "w+b")
        if update > 1:
            end = self._end_of_earlier_updates(file, header, update)
        else:
            end = 0
        file.truncate(end)
        file.seek(end)
        if end == 0:
            file.write(header)
        return file

    def _end_of_earlier_updates(self, file, header: bytes, update: int) -> int:
        first = file.readline()
        if not first.endswith(b"\n"):
            return 0
        if first != header:
            file.close()
            raise ValueError(
                f"gradient_statistics={str(self.path)!r} was written by another model; "
                "allowed: a file of this run, or a new one"
            )
        end = len(first)
        for line in file:
            if not line.endswith(b"\n") or json.loads(line)["update"] >= update:
                break
            end += len(line)
        return end
