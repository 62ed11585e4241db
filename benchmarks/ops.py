"""Time, memory and errors of the ops of the registry, over the length."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairseq_transnormer.ops import FEATURE_MAPS

from . import measure
from .measure import FORWARD, GRAPH, LAUNCHED, TRAINING, Limits
from .options import DTYPES, Options, Rows, benchmark, option
from .providers import Case, Op, Provider, Setup, normal
from .registry import REGISTRY

LENGTHS = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536]
# wrong above this many times the error of plain torch in the measured dtype, and above
# what another order of float32 sums makes
FACTOR, ROUNDING = 4.0, 1e-5
# what differs between a GPU and a CPU
DEFAULTS = {
    "cuda": {"tokens": 65536, "dtype": "bfloat16", "quadratic_limit_gib": 4.0},
    "cpu": {"tokens": 16384, "dtype": "float32", "quadratic_limit_gib": 0.5},
}


@dataclass
class OpsOptions(Options):
    """Of both commands; what is None depends on the device."""

    quadratic_limit_gib: float | None = option(
        None, "leave out larger length x length matrices (4 on a GPU)", type=float
    )
    ops: list[str] = option([*REGISTRY], "to measure", choices=[*REGISTRY])
    lengths: list[int] | None = option(None, "n, up to --tokens", nargs="+", type=int)
    quick: bool = option(False, "without providers that compile or tune for long")
    check_length: int = option(512, "where errors are measured")
    tokens: int | None = option(None, "B n (65,536 on a GPU)", type=int)
    heads: int = option(8, "H")
    width: int = option(64, "D, of a head")
    block_size: int = option(64, "w")
    feature_map: str = option(
        "identity", "phi of linear attention", choices=sorted(FEATURE_MAPS)
    )
    dtype: str | None = option(None, "of inputs (bfloat16 on a GPU)", choices=DTYPES)

    def check(self) -> None:
        for name, value in DEFAULTS[self.device.type].items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        self.lengths = self.lengths or [n for n in LENGTHS if n <= self.tokens]
        for length in self.lengths:
            if length < 1 or self.tokens % length:
                raise ValueError(
                    f"--lengths must divide --tokens {self.tokens}, got {length}"
                )
        if self.check_length % self.block_size:
            raise ValueError(
                f"--check-length must be a multiple of --block-size "
                f"{self.block_size}, got {self.check_length}"
            )

    def setup(self) -> Setup:
        sizes = self.tokens, self.heads, self.width, self.block_size
        return Setup(*sizes, self.feature_map, self.device, self.torch_dtype)

    def entries(self) -> list[Op]:
        """What is asked for of the registry."""
        # on a GPU all tokens, which torch.compile then has compiled once
        batch = max(self.tokens // self.check_length, 1)
        check = Case(batch if self.device.type == "cuda" else 2, self.check_length)
        cases = [Case(self.tokens // n, n) for n in self.lengths]
        made = [REGISTRY[name](self.setup(), cases, check) for name in self.ops]
        return [op for each in made for op in each]


class Judge:
    """Errors of an op's providers against float64, at the op's check."""

    def __init__(self, op: Op):
        self.op, self.inputs = op, op.check_inputs()
        self._expected: dict[str, tuple] = {}

    def __call__(self, provider: Provider) -> dict[str, object]:
        """Fields of a row: errors, those of plain torch, and whether it is wrong."""
        computes, equation = provider.instead or (self.op.name, self.op.equation)
        if computes not in self._expected:
            self._expected[computes] = self._references(equation)
        grads, expected, yardstick = self._expected[computes]
        inputs = provider.arranged(self.inputs)
        outputs = as_tuple(provider.start(inputs)())
        found = differentiated(outputs, inputs, provider.arranged(grads))
        errors = _errors([provider.arranged(each) for each in found], expected)
        right = all(
            error is None or error <= max(FACTOR * allowed, ROUNDING)
            for error, allowed in zip(errors.values(), yardstick.values(), strict=True)
        )
        # NaN and infinity, which JSON has not, as text
        shown = {k: v if v is None or v < 1e300 else str(v) for k, v in errors.items()}
        return {"errors": shown, "yardstick": yardstick, "wrong": not right}

    def _references(self, equation: Callable):
        wide = [
            x.detach().double().requires_grad_(x.requires_grad)
            if x.is_floating_point()
            else x
            for x in self.inputs
        ]
        outputs = as_tuple(equation(*wide))
        dtype = self.inputs[0].dtype
        grads = [normal(y.shape, y.device, torch.float32).to(dtype) for y in outputs]
        expected = differentiated(outputs, wide, grads)
        plain = differentiated(as_tuple(equation(*self.inputs)), self.inputs, grads)
        return grads, expected, _errors(plain, expected)


def as_tuple(outputs) -> tuple[Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def differentiated(outputs, inputs, grads) -> tuple[list[Tensor], list[Tensor]]:
    """Detached outputs, and the gradients of the inputs that require them."""
    leaves, gradients = [x for x in inputs if x.requires_grad], []
    if leaves:
        grads = [g.to(y.dtype) for g, y in zip(grads, outputs, strict=True)]
        found = torch.autograd.grad(outputs, leaves, grads, allow_unused=True)
        gradients = [
            torch.zeros_like(x) if g is None else g
            for g, x in zip(found, leaves, strict=True)
        ]
    return [y.detach().clone() for y in outputs], gradients


def _errors(actual: Sequence, expected: Sequence) -> dict[str, float | None]:
    kinds = ("forward", "gradients")
    return {
        kind: max(map(measure.relative_error, *both)) if both[0] else None
        for kind, both in zip(kinds, zip(actual, expected, strict=True), strict=True)
    }


def why_not_at(provider: Provider, op: Op, case: Case, options) -> str | None:
    """Why a provider is left out at a size."""
    if provider.blocks and case.length % options.block_size:
        return f"takes multiples of the block size {options.block_size}"
    if provider.quadratic:
        matrix = case.batch * options.heads * case.length**2
        return measure.quadratic_skip(matrix * options.torch_dtype.itemsize, options)
    return None


def make_call(provider: Provider, inputs: list[Tensor], mode: str):
    """One measured call, and the bytes of moving each input and output once.

    inputs: (B, N, H, D), copied into the provider's layout.
    mode: FORWARD runs without autograd.
    """
    inputs = provider.arranged(inputs)
    start = provider.start(inputs)

    def forward() -> object:
        with torch.no_grad():
            return start()

    outputs = as_tuple(forward())
    moved = measure.nbytes([*inputs, *outputs])
    if mode == FORWARD:
        return forward, moved
    grads = [normal(y.shape, y.device, y.dtype) for y in outputs]
    leaves = [x for x in inputs if x.requires_grad]

    def forward_and_backward() -> object:
        return torch.autograd.grad(as_tuple(start()), leaves, grads, allow_unused=True)

    forward_and_backward()
    # again in the backward pass, which writes gradients
    return forward_and_backward, 2 * moved + measure.nbytes(leaves)


def rows_of(op: Op, names: list[str], options, limits: Limits, end: float):
    """Rows of these providers, of a size after the other.

    One that cannot run at all, or at a size, has a row that says why.
    """
    judge, verdicts = Judge(op), {}
    for name in names:
        provider, row = op.providers[name], _row(op, name)
        reason = provider.why_not_on(options.device)
        at = [why_not_at(provider, op, case, options) for case in op.cases]
        reason = reason or limits.over(end) or (at[0] if all(at) else None)
        try:
            verdicts[name] = None if reason else judge(provider)
        except Exception as error:  # whatever a peer raises is the answer
            reason = measure.why_not_measured(error)
        if reason:
            verdicts.pop(name, None)
            yield [row | {"skipped": reason}]
    del judge
    for case in op.cases:
        yield _of_case(op, case, verdicts, options, limits, end)


def _of_case(op: Op, case: Case, verdicts: dict, options, limits, end) -> Rows:
    rows, entered = [], []
    for name in verdicts:
        reason = why_not_at(op.providers[name], op, case, options) or limits.over(end)
        if reason is None:
            entered.append(name)
        else:
            rows.append(_row(op, name, case) | {"skipped": reason})
    inputs = op.inputs(case) if entered else []
    modes = [FORWARD, *([TRAINING] if any(x.requires_grad for x in inputs) else [])]
    for mode in modes:
        calls, these = {}, {}
        for name in entered:
            provider = op.providers[name]
            row = _row(op, name, case) | {"mode": mode}
            rows.append(row)
            try:
                call, moved = make_call(provider, inputs, mode)
                row["peak_bytes"] = measure.peak_bytes(call, options.device)
            except Exception as error:
                row["skipped"] = measure.why_not_measured(error)
                continue
            row["least_bytes"] = op.least_bytes(case) if op.least_bytes else moved
            row |= {"ours": provider.ours, "same": provider.instead is None}
            row |= verdicts[name]
            calls[name], these[name] = call, row
        rows += _timed(calls, these, options)
    return rows


def _timed(calls: dict[str, Callable], rows: dict[str, dict], options) -> Rows:
    """Adds samples to the rows, launched; the new rows are those of CUDA graphs."""
    for row in rows.values():
        row["timing"] = LAUNCHED
    if options.device.type == "cpu":
        for name, seconds in measure.time_in_turns(calls, options, cold=True).items():
            rows[name]["seconds"] = seconds
        return []
    graphs = [{**row, "timing": GRAPH} for row in rows.values()]
    for row in [*rows.values(), *graphs]:
        call = calls[row["provider"]]
        try:
            if row["timing"] == GRAPH:
                call = measure.captured(lambda call=call: call)
            row["seconds"] = measure.time_in_turns({"": call}, options)[""]
        except Exception as error:
            row["skipped"] = measure.why_not_measured(error)
        # one graph at a time: each holds memory of its own
        call = None
        measure.release_graphs()
    return graphs


def _row(op: Op, provider: str, case: Case | None = None) -> dict:
    row = {"op": op.name, "variant": op.variant, "provider": provider}
    return row if case is None else row | case._asdict()


@benchmark(OpsOptions)
def ops(options: OpsOptions, settings: dict) -> Iterator[Rows]:
    """The ops and their peers: time, memory, errors and share of the bandwidth.

    The number of tokens is the same at every length. Each provider is compared with
    float64 before it is timed, caches are cold, and on a GPU each call is timed as
    Python launches it and as a CUDA graph. What cannot run is a row with its reason.
    Those whose first call compiles or tunes come last, one after the other, each with
    an equal part of the time that is left.
    """
    limits = Limits(options)
    settings["copy_bandwidth"] = measure.copy_bandwidth(options.device, options.clock)
    together, alone = [], []
    for op in options.entries():
        slow = [name for name, each in op.providers.items() if each.slow]
        together.append((op, [name for name in op.providers if name not in slow]))
        alone += [(op, [name]) for name in slow]
    for op, names in together:
        yield from rows_of(op, names, options, limits, limits.end)
    for i, (op, names) in enumerate([] if options.quick else alone):
        end = limits.part_of(len(alone) - i)
        yield from rows_of(op, names, options, limits, end)


@benchmark(OpsOptions)
def smoke(options: OpsOptions, settings: dict) -> Iterator[Rows]:
    """Each kind of our kernels once, its errors and plain torch's; exit code 1 if
    one did not run or was wrong."""
    name = "ours (triton)" if options.device.type == "cuda" else "ours (torch)"
    begin = time.monotonic()
    for op in options.entries():
        if name not in op.providers:
            continue
        row = _row(op, name) | {"ours": True, "wrong": True}
        try:
            row |= Judge(op)(op.providers[name])
        except Exception as error:  # whatever does not compile is the answer
            row["skipped"] = measure.why_not_measured(error)
        found = row.get("skipped") or f"{row['errors']}, torch {row['yardstick']}"
        wrong = "WRONG: " if row["wrong"] else ""
        print(f"{time.monotonic() - begin:6.1f} s {wrong}{found}", flush=True)
        yield [row]
