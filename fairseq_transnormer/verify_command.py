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
    """Try the Triton kernels on this device, and write down which may be used.

    What models launch forward, backward and in generation is compared with torch and
    float64, by length, with and without pads. A training and the first call with
    backend=auto run this by themselves for what has no verdict yet. Verdicts are in
    $FAIRSEQ_TRANSNORMER_CACHE/verdicts, else in fairseq_transnormer/verdicts of the
    user's cache.

    Exit code: 0 all passed, 1 some did not (torch then serves them), 2 wrong usage.

    Args:
        device: None: the first GPU; cpu: interpreted.
        arch: models' names for fairseq-train.
        dtype: of the models; float32 is tried in TF32.
        lengths: of texts, in tokens.
        configuration: instead of models: what kernels are compiled for, in the words
            of the printed table.
        workers: processes that compile and try; one that dies of a trial is replaced.
        again: try what has a verdict, too.
        output: JSON file for the table.
        amp: models in float32 under autocast, as fairseq's --amp has them.
    """
    from . import verify as trials

    return trials.run(
        device, arch, dtype, lengths, configuration, workers, again, output, amp
    )
