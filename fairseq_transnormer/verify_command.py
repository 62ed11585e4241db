"""``python -m fairseq_transnormer verify``."""

from __future__ import annotations

from typing import Literal

from .outputs import OutputFile

Dtype = Literal["bfloat16", "float16", "float32", "float64"]


def verify(
    device: str | None = None,
    arch: tuple[str, ...] = ("transnormer_t2", "transnormer_t1"),
    dtype: tuple[Dtype, ...] = ("bfloat16", "float16"),
    lengths: tuple[int, ...] = (512,),
    configuration: tuple[str, ...] = (),
    workers: int = 1,
    again: bool = False,
    output: OutputFile = None,
    amp: bool = False,
) -> int:
    """Try the Triton kernels on this device, and save which may be used.

    The kernels of training and generation are compared with torch and float64, by
    length, with and without pads. Trainings and the first call with backend=auto try
    kernels without a verdict themselves. Verdicts are saved in
    $FAIRSEQ_TRANSNORMER_CACHE/verdicts, by default fairseq_transnormer/verdicts in the
    user's cache.

    Exit code: 0 all passed, 1 some failed (torch replaces them), 2 wrong usage.

    Args:
        device: None: the first GPU; cpu: the interpreter.
        arch: names of models for fairseq-train.
        dtype: of the models; float32 is tried in TF32.
        lengths: of texts, in tokens.
        configuration: instead of models: configurations of kernels, as the printed
            table names them.
        workers: processes that compile and try; a trial that kills one gets a new one.
        again: also try kernels that have a verdict.
        output: JSON file for the table.
        amp: models in float32 under autocast, as with fairseq's --amp.
    """
    import torch

    from . import verify as trials
    from .devices import usable_device
    from .ops import backend

    trials.prepare()
    place = usable_device(device)
    named = [trials.configuration_of(words, place) for words in configuration]
    for name in arch:
        if name not in trials.ARCHITECTURES:
            known = ", ".join(trials.ARCHITECTURES)
            raise ValueError(f"--arch must be one of {known}, got {name}")
    for option, numbers in (("lengths", lengths), ("workers", [workers])):
        if min(numbers) < 1:
            raise ValueError(f"--{option} must be at least 1, got {min(numbers)}")
    dtypes = [trials.DTYPES_BY_NAME[name] for name in dtype]
    rowwise = backend.Kernels("rows", products=False)
    reasons = {
        backend.why_triton_cannot_run([torch.empty(0, dtype=x, device=place)], rowwise)
        for x in dtypes
    }
    if None not in reasons:
        why = "; ".join(sorted(filter(None, reasons)))
        raise ValueError(f"no kernel can run on {place}: {why}")
    if named:
        configurations = trials.with_all_forms(named)
    else:
        configurations = trials.needed(arch, dtypes, lengths, place, amp)
    return trials.report(configurations, place, workers, again, output)
