"""Rows of one group: every contestant checked, then measured at every size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..harness import cold_cache, command_line
from ..harness.cases import Deadline
from ..harness.cuda_graphs import captured
from ..harness.memory import peak_bytes, why_not_measured
from ..harness.phases import FORWARD, GRAPH, LAUNCHED, TRAINING
from ..harness.roofline import least_bytes
from ..harness.timing import Repeats, interleave
from .accuracy import Judge, Verdict
from .contestants.contestant import (
    Case,
    Contestant,
    Group,
    Setup,
    as_tuple,
    normal_like,
)


class Rules(NamedTuple):
    """What is measured, and for how long.

    compiled_lengths: those at which contestants in torch.compile are measured.
    deadline: what has not begun then is left out.
    """

    repeats: Repeats
    clock: str
    compiled_lengths: list[int]
    quadratic_limit_gib: float
    deadline: Deadline


def measure(
    group: Group, contestants: list[Contestant], setup: Setup, rules: Rules
) -> Iterator[dict[str, object]]:
    """Rows of these contestants of the group, as soon as a size is done.

    A row without ``length`` says why a contestant does not run at all; one without
    ``mode`` why it does not run at a size.
    """
    judge = Judge(group)
    verdicts = {}
    for contestant in contestants:
        outcome = _verdict(contestant, group, judge, setup, rules)
        if isinstance(outcome, str):
            yield _row(group, contestant) | {"skipped": outcome}
        else:
            verdicts[contestant] = outcome
    del judge
    for case in group.cases:
        yield from _measure_case(group, case, verdicts, setup, rules)


def _verdict(contestant, group, judge, setup, rules) -> Verdict | str:
    """How right it is, or why it cannot run here, or at no size."""
    reason = contestant.why_not_on(setup.device)
    if reason is not None:
        return reason
    reasons = [why_not_at(contestant, group, c, setup, rules) for c in group.cases]
    if all(reasons):
        return reasons[0]
    try:
        return judge(contestant)
    except Exception as error:  # whatever a peer raises is the answer
        return why_not_measured(error)


def _measure_case(
    group: Group, case: Case, verdicts: dict[Contestant, Verdict], setup, rules
) -> list[dict[str, object]]:
    rows, entered = [], []
    for contestant in verdicts:
        reason = why_not_at(contestant, group, case, setup, rules)
        if reason is None:
            entered.append(contestant)
        else:
            rows.append(_row(group, contestant, case) | {"skipped": reason})
    inputs = group.inputs(case) if entered else []
    modes = [FORWARD]
    if any(x.requires_grad for x in inputs):
        modes.append(TRAINING)
    for mode in modes:
        calls, these = {}, {}
        for contestant in entered:
            row = _row(group, contestant, case) | {"mode": mode}
            rows.append(row)
            try:
                call, sizes = make_call(contestant, inputs, mode)
                # the first calls, for its memory too, warm it up
                row["peak_bytes"] = peak_bytes(call, setup.device)
            except Exception as error:
                row["skipped"] = why_not_measured(error)
                continue
            if group.least_bytes is not None:
                sizes = {"forward": group.least_bytes(case)}
            row["least_bytes"] = sizes["forward"]
            if mode == TRAINING:
                row["least_bytes"] += sizes["backward"]
            row |= {
                "computes": group.computation_of(contestant).name,
                "ours": contestant.ours,
                "same": contestant.instead is None,
                **verdicts[contestant].fields(),
            }
            calls[contestant.name], these[contestant.name] = call, row
        rows += _time(calls, these, setup.device, rules)
    return rows


def why_not_at(
    contestant: Contestant, group: Group, case: Case, setup: Setup, rules: Rules
) -> str | None:
    """Why a contestant is left out at a size."""
    of_length = group.axis == "length"
    if contestant.compiled and of_length and case.length not in rules.compiled_lengths:
        lengths = " ".join(map(str, rules.compiled_lengths))
        return f"torch.compile is measured at --compiled-lengths {lengths}"
    if contestant.blocks and case.length % setup.block_size:
        return f"takes multiples of the block size {setup.block_size}"
    if contestant.quadratic:
        matrix = case.batch * setup.heads * case.length**2 * setup.dtype.itemsize
        reason = command_line.quadratic_skip(matrix, rules)
        if reason is not None:
            return reason
    return rules.deadline.over()


def make_call(
    contestant: Contestant, inputs: list[Tensor], mode: str
) -> tuple[Callable[[], object], dict[str, int]]:
    """One measured call, and the bytes that it must move.

    Args:
        contestant: called once, to see its outputs.
        inputs: in (B, N, H, D); copied into its layout.
        mode: ``FORWARD`` runs without autograd.
    """
    inputs = contestant.arranged(inputs)
    start = contestant.start(inputs)

    def forward() -> object:
        with torch.no_grad():
            return start()

    outputs = as_tuple(forward())
    sizes = least_bytes(inputs, outputs)
    if mode == FORWARD:
        return forward, sizes
    grads = [normal_like(y) for y in outputs]
    leaves = [x for x in inputs if x.requires_grad]

    def forward_and_backward() -> object:
        outputs = as_tuple(start())
        return torch.autograd.grad(outputs, leaves, grads, allow_unused=True)

    forward_and_backward()
    return forward_and_backward, sizes


def _time(
    calls: dict[str, Callable], rows: dict[str, dict], device, rules: Rules
) -> list[dict[str, object]]:
    """Adds samples to the rows, launched; the new rows are those of CUDA graphs."""

    def timed(calls, before_each):
        return interleave(
            calls, device, rules.repeats, clock=rules.clock, before_each=before_each
        )

    graph_rows = []
    if device.type == "cuda":
        graph_rows = [{**row, "timing": GRAPH} for row in rows.values()]
    flush = cold_cache.flusher(device, wait=True)
    for name, seconds in timed(calls, flush).items():
        rows[name] |= {"timing": LAUNCHED, "seconds": seconds}
    flush = cold_cache.flusher(device, wait=False)
    for row in graph_rows:
        # one at a time: each holds memory of its own
        try:
            replay = {"": captured(lambda row=row: calls[row["contestant"]])}
            row["seconds"] = timed(replay, flush)[""]
        except Exception as error:
            row["skipped"] = why_not_measured(error)
    return graph_rows


def _row(group: Group, contestant: Contestant, case: Case | None = None) -> dict:
    row = {
        "group": group.name,
        "variant": group.variant,
        "contestant": contestant.name,
    }
    return row if case is None else row | case._asdict()
