"""fp16 products of matrices on a CPU by its fp32 ones: sums in fp32, rounded once.

    PYTHONPATH=benchmarks/fp16_products:$PYTHONPATH python -m fairseq_transnormer...

That is what a GPU's tensor cores do. torch's own are 15 to 40 times slower than fp32
where a CPU has no fp16 arithmetic. Python imports a module of this name at its start.
"""

import warnings

import torch

_LIBRARY = torch.library.Library("aten", "IMPL")


def _in_float32(name: str) -> None:
    """Let aten::``name`` compute fp16 on the CPU through its ``out`` variant."""
    into = getattr(torch.ops.aten, name).out

    def product(*tensors, **factors):
        halves = tensors[0].dtype == torch.float16
        given = [each.float() for each in tensors] if halves else tensors
        out = into(*given, **factors, out=given[0].new_empty(0))
        return out.half() if halves else out

    _LIBRARY.impl(name, product, "CPU")


with warnings.catch_warnings():  # that a kernel of torch's is replaced
    warnings.simplefilter("ignore", UserWarning)
    for _name in ("mm", "bmm", "addmm", "baddbmm"):
        _in_float32(_name)
