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
    from . import verify as trials

    return trials.run(
        device, arch, dtype, lengths, configuration, workers, again, output, amp
    )
