"""Time, memory and errors of the ops of the registry, over the length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from . import measure
from .measure import FORWARD, GRAPH, LAUNCHED, TRAINING, Limits, attempt
from .options import Case, Ops, Rows, chosen
from .registry import REGISTRY, Op, Provider, normal

# wrong above this many times the error of plain torch in the measured dtype, and above
# what another order of float32 sums makes
FACTOR, ROUNDING = 4.0, 1e-5


class Judge:
    """Errors of an op's providers against float64, at the op's check."""

    def __init__(self, op: Op):
        self.inputs = op.check_inputs()
        wide = [x.detach() for x in self.inputs]
        wide = [x.double() if x.is_floating_point() else x for x in wide]
        for x, given in zip(wide, self.inputs, strict=True):
            x.requires_grad_(given.requires_grad)
        outputs, dtype = as_tuple(op.equation(*wide)), self.inputs[0].dtype
        drawn = [normal(y.shape, y.device, torch.float32) for y in outputs]
        self.grads = [x.to(dtype) for x in drawn]
        self.expected = differentiated(outputs, wide, self.grads)
        plain = as_tuple(op.equation(*self.inputs))
        found = differentiated(plain, self.inputs, self.grads)
        self.yardstick = _errors(found, self.expected)

    def __call__(self, provider: Provider) -> dict[str, object]:
        """Fields of a row: errors, those of plain torch, and whether it is wrong."""
        if provider.other:
            return {"wrong": False}
        inputs = provider.arranged(self.inputs)
        outputs = as_tuple(provider.start(inputs)())
        found = differentiated(outputs, inputs, provider.arranged(self.grads))
        found = [provider.arranged(each) for each in found]
        errors, wrong = _errors(found, self.expected), False
        for kind, error in errors.items():
            if error is not None:
                # NaN is wrong, too
                wrong |= not error <= max(FACTOR * self.yardstick[kind], ROUNDING)
                # NaN and infinity, which JSON has not, as text
                errors[kind] = error if error < 1e300 else str(error)
        return {"errors": errors, "yardstick": self.yardstick, "wrong": wrong}


def as_tuple(outputs) -> tuple[Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def differentiated(outputs, inputs, grads) -> tuple[list[Tensor], list[Tensor]]:
    """Detached outputs, and the gradients of the inputs that require them."""
    leaves, gradients = [x for x in inputs if x.requires_grad], []
    if leaves:
        grads = [g.to(y.dtype) for g, y in zip(grads, outputs, strict=True)]
        gradients = torch.autograd.grad(
            outputs, leaves, grads, allow_unused=True, materialize_grads=True
        )
    return [y.detach().clone() for y in outputs], [*gradients]


def _errors(actual: Sequence, expected: Sequence) -> dict[str, float | None]:
    kinds = ("forward", "gradients")
    return {
        kind: max(map(measure.relative_error, *both)) if both[0] else None
        for kind, both in zip(kinds, zip(actual, expected, strict=True), strict=True)
    }


def why_not_at(provider: Provider, case: Case, options: Ops) -> str | None:
    """Why a provider is left out at a size."""
    if provider.blocks and case.length % options.block_size:
        return f"takes multiples of the block size {options.block_size}"
    matrix = case.batch * options.heads * case.length**2
    size = matrix * options.torch_dtype.itemsize
    return measure.quadratic_skip(size, options) if provider.quadratic else None


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


def rows_of(op: Op, names: list[str], limits: Limits, end: float) -> Iterator[Rows]:
    """Rows of these providers, of a size after the other.

    One that cannot run at all, or at a size, has a row that says why.
    """
    judge, verdicts, options = Judge(op), {}, op.options
    for name in names:
        provider, row = op.providers[name], _row(op, name)
        at = [why_not_at(provider, case, options) for case in op.cases]
        reason = provider.why_not(options) or limits.over(end)
        reason = reason or (at[0] if all(at) else None)
        verdicts[name] = reason or attempt(judge, provider)
        if isinstance(verdicts[name], str):
            row["skipped"] = verdicts.pop(name)
            # what does not even run is wrong, unless it is not to run
            yield [row | {"ours": provider.ours, "wrong": provider.ours and not reason}]
    del judge
    for case in op.cases:
        yield _of_case(op, case, verdicts, limits, end)


def _of_case(op: Op, case: Case, verdicts: dict, limits: Limits, end: float) -> Rows:
    options, reasons = op.options, {}
    for name in verdicts:
        reason = why_not_at(op.providers[name], case, options) or limits.over(end)
        reasons |= {name: reason} if reason else {}
    rows = [_row(op, name, case) | {"skipped": why} for name, why in reasons.items()]
    entered = [name for name in verdicts if name not in reasons]
    inputs = op.inputs(case) if entered else []
    modes = [FORWARD, *([TRAINING] if any(x.requires_grad for x in inputs) else [])]
    for mode in modes:
        cases = []
        for name in entered:
            provider, row = op.providers[name], _row(op, name, case) | {"mode": mode}
            call = attempt(make_call, provider, inputs, mode)
            if not isinstance(call, str):
                call, moved = call
                row["least_bytes"] = op.least_bytes(case) if op.least_bytes else moved
                row |= {"ours": provider.ours, "same": not provider.other}
                row |= verdicts[name] | {"timing": LAUNCHED}
            cases.append((row, call))
        rows += timed(cases, options)
    return rows


def timed(cases: list[tuple[dict, Callable | str]], options: Ops) -> Rows:
    """Rows of the calls as launched, and on a GPU also those of CUDA graphs."""
    rows = measure.measure(cases, options, cold=True)
    if options.on_gpu:
        # one graph at a time: each holds memory of its own
        for row, call in [case for case in cases if "peak_bytes" in case[0]]:
            kept = {k: v for k, v in row.items() if k not in ("seconds", "skipped")}
            graph = kept | {"timing": GRAPH}
            same = lambda call=call: call  # noqa: E731
            rows.append(measure.measure_graph(graph, same, options))
    return rows


def _row(op: Op, provider: str, case: Case | None = None) -> dict:
    row = {"op": op.name, "variant": op.variant, "provider": provider}
    return row if case is None else row | case._asdict()


def ops(options: Ops, settings: dict) -> Iterator[Rows]:
    names = chosen("--ops", options.ops, REGISTRY)
    limits = Limits(options)
    settings["copy_bandwidth"] = measure.copy_bandwidth(options)
    together, alone = [], []
    for op in [op for name in names for op in REGISTRY[name](options)]:
        slow = [name for name, each in op.providers.items() if each.slow]
        together.append((op, [name for name in op.providers if name not in slow]))
        alone += [(op, [name]) for name in slow]
    for op, kinds in together:
        yield from rows_of(op, kinds, limits, limits.end)
    for i, (op, kinds) in enumerate([] if options.quick else alone):
        yield from rows_of(op, kinds, limits, limits.part_of(len(alone) - i))
