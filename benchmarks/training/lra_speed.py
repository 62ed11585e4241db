"""Speed and memory of the Long-Range Arena's classifiers over the length (Table 7).

    python -m benchmarks lra_speed

All systems take turns in one process, in inference and in training (forward, loss,
backward, AdamW's step), on random bytes without pads, at Appendix E's sizes. The
vanilla transformer stands there twice: with its attention as a matrix, as in the paper,
and through torch's fused attention (on a CPU without attention_dropout, which torch has
no fused kernel for).

A case that runs out of memory, which the paper marks with a dash, has no figures and
says so. On a CPU, whose memory cannot be used up safely, systems that keep matrices of
length x length are left out where they would need more than there is, or where one
layer's are above --quadratic-limit-gib.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fairseq_transnormer.argument_types import positive_integer
from fairseq_transnormer.modules import systems

from ..harness import command_line
from ..harness.cases import Deadline, add_time_limit, time_in_turns
from ..harness.memory import (
    available_bytes,
    is_out_of_memory,
    peak_bytes,
    why_not_measured,
)
from ..harness.phases import INFERENCE, TRAINING_STEP

NAME = "lra_speed"
LENGTHS = [1024 * thousand for thousand in (1, 2, 3, 4, 5, 8, 16)]
# 48 GB, where the paper's vanilla transformer ends between 2K and 3K in inference and
# in training alike, point to about so many sequences in float32
BATCH = {"cuda": 256, "cpu": 1}
VOCABULARY, CLASSES = 256, 2
MATERIALISED, FUSED = "Transformer", "Transformer, SDPA"
_ARCHITECTURES = {
    name: system.architecture_of("lra")
    for name, system in systems.SYSTEMS.items()
    if "lra" in system.kinds
}
# contestant: architecture
SYSTEMS = dict.fromkeys((MATERIALISED, FUSED), _ARCHITECTURES.pop("vanilla")) | {
    systems.SYSTEMS[name].label: architecture
    for name, architecture in _ARCHITECTURES.items()
}
# heads whose length x length matrices a system keeps, in each of two layers
QUADRATIC = {MATERIALISED: 2, "Kernelized Attention": 2, "FLASH-quad": 1}
# a step's peak as a multiple of one layer's matrices, as measured on a CPU at 16K
PEAKS = {
    INFERENCE: {MATERIALISED: 2.3, "Kernelized Attention": 3, "FLASH-quad": 6.1},
    TRAINING_STEP: {MATERIALISED: 7, "Kernelized Attention": 9, "FLASH-quad": 15.2},
}


def build(name: str, options, length: int) -> nn.Module:
    """A system's classifier for sequences of up to ``length`` tokens."""
    import fairseq_transnormer.plugin  # noqa: F401 (registers the models)

    # isort: split
    from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

    architecture = SYSTEMS[name]
    config = MODEL_DATACLASS_REGISTRY[architecture](
        max_positions=length, linformer_length=length, backend=options.backend
    )
    if name == FUSED and options.device.type == "cpu":
        # with it torch has no fused kernel on a CPU
        config.attention_dropout = 0.0
    task = SimpleNamespace(
        vocabulary_size=VOCABULARY, num_classes=CLASSES, num_sequences=1
    )
    model = MODEL_REGISTRY[architecture].build_model(config, task)
    return model.to(options.device)


class Contestant:
    """A system's steps.

    Args:
        name: one of ``SYSTEMS``.
        options: of the command line.
        length: tokens, which positions and Linformer's projections are for.
    """

    def __init__(self, name: str, options, length: int):
        self.name, self.model = name, build(name, options, length)
        self.autocast = options.autocast
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(parameters, 1e-4, weight_decay=0.0)
        # AdamW makes its sums in its first step: now, so that they do not count
        for p in parameters:
            p.grad = torch.zeros_like(p)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def step(self, phase: str, tokens: Tensor, labels: Tensor) -> None:
        """int64 (B, N) and (B,): one step of inference or of training."""
        lengths = torch.full_like(labels, tokens.shape[1])
        training = phase == TRAINING_STEP
        self.model.train(training)
        as_matrix = self.name == MATERIALISED
        with (
            sdpa_kernel(SDPBackend.MATH) if as_matrix else nullcontext(),
            torch.set_grad_enabled(training),
        ):
            with torch.autocast(
                tokens.device.type, self.autocast, enabled=self.autocast is not None
            ):
                logits = self.model((tokens,), (lengths,))
                loss = F.cross_entropy(logits.float(), labels)
            if training:
                loss.backward()
        if training:
            self.optimizer.step()
            self.optimizer.zero_grad()


def measure_case(
    contestants: dict[str, Contestant], options, phase: str, length: int, deadline
) -> list[dict[str, object]]:
    """A row for each contestant; nothing new begins after the deadline."""
    tokens = torch.randint(VOCABULARY, (options.batch, length), device=options.device)
    labels = torch.randint(CLASSES, (options.batch,), device=options.device)
    rows, calls = {}, {}
    for name, contestant in contestants.items():
        rows[name] = row = {
            "contestant": name,
            "phase": phase,
            "length": length,
            "batch": options.batch,
        }

        def call(contestant=contestant):
            contestant.step(phase, tokens, labels)

        skipped = (
            _skip(name, options, phase, length)
            or deadline.over()
            or _try(call, options)
        )
        if isinstance(skipped, str):
            row["skipped"] = skipped
            # gradients that were made before the memory ended
            contestant.optimizer.zero_grad()
        else:
            row["peak_bytes"] = skipped
            calls[name] = call
    time_in_turns(rows, calls, options)
    return list(rows.values())


def _skip(name: str, options, phase: str, length: int) -> str | None:
    if options.device.type == "cuda" or name not in QUADRATIC:
        return None
    matrices = options.batch * QUADRATIC[name] * length**2 * torch.float32.itemsize
    needed, there = PEAKS[phase][name] * matrices, available_bytes()
    if needed > there:
        gib = command_line.GIB
        return f"out of memory: it takes {needed / gib:.3g} GiB of {there / gib:.3g}"
    return command_line.quadratic_skip(matrices, options)


def _try(call: Callable[[], object], options) -> int | str:
    """Peak bytes of a call, or why it cannot be measured."""
    try:
        return peak_bytes(call, options.device)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        failure = why_not_measured(error)
    torch.cuda.empty_cache()
    return failure


def measure(options) -> Iterator[list[dict[str, object]]]:
    """The rows of one length after the other."""
    deadline = Deadline(options.time_limit)
    for length in sorted(options.lengths):
        contestants = {
            name: Contestant(name, options, length) for name in options.systems
        }
        rows = []
        for phase in options.phases:
            rows += measure_case(contestants, options, phase, length, deadline)
            print(f"{NAME}: length {length}, {phase}", flush=True)
        yield rows


def parse(arguments: list[str] | None):
    """The options; the batch depends on the device."""
    parser = command_line.benchmark_parser(NAME, __doc__.splitlines()[0])
    # two heads' matrices of 16K tokens in float32
    parser.set_defaults(quadratic_limit_gib=2.0)
    add = parser.add_argument
    names, phases = list(SYSTEMS), [INFERENCE, TRAINING_STEP]
    add("--systems", choices=names, nargs="+", default=names, help="to measure")
    add("--phases", choices=phases, nargs="+", default=phases, help="to measure")
    add("--lengths", type=positive_integer, nargs="+", default=LENGTHS, help="tokens")
    add(
        "--batch", type=positive_integer, help=f"sequences (default by device: {BATCH})"
    )
    add("--backend", default="auto", help="implementation of our ops")
    add(
        "--dtype",
        choices=command_line.DTYPES,
        default=command_line.DTYPES[0],
        help="float32, or what is autocast to",
    )
    add_time_limit(parser, 3600)
    options = parser.parse_args(arguments)
    options.batch = options.batch or BATCH[options.device.type]
    dtype = getattr(torch, options.dtype)
    options.autocast = None if dtype == torch.float32 else dtype
    return options


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    options = parse(arguments)
    command_line.run(
        NAME,
        options,
        arguments,
        {
            "batch": options.batch,
            "backend": options.backend,
            "width": 64,
            "layers": 2,
        },
        measure(options),
    )
