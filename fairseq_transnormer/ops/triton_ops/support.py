"""Where the Triton kernels can run, and where they are worth it. Imports no Triton."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
WIDTHS = (32, 64, 128)
SMALLEST_CAPABILITY = (8, 0)
# Whether scripts/gpu_check.sh has passed on a GPU. Until then "auto" takes torch:
# interpreted and compiled kernels can still be wrong on the device.
VERIFIED_ON_A_GPU = False
# Triton's interpreter runs the kernels on the CPU; read when Triton is imported
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def constant_when_compiled(function: Callable) -> Callable:
    """``torch.compiler.assume_constant_result`` without its import of torch._dynamo.

    That takes more than a second of every process, compiling or not.
    """
    function._dynamo_marked_constant = True
    return function


def why_triton_cannot_run(
    tensors: Sequence[Tensor], widths: Sequence[int]
) -> str | None:
    """The reason why the kernels cannot take these inputs, or None.

    Args:
        tensors: inputs, for device and dtype.
        widths: head widths.
    """
    if not _triton_is_installed():
        return "the package triton is not installed"
    for tensor in tensors:
        if tensor.dtype not in DTYPES:
            return f"{tensor.dtype}; its kernels take {', '.join(map(str, DTYPES))}"
        if INTERPRETED:
            continue
        if tensor.device.type != "cuda":
            return f"a tensor on {tensor.device}; its kernels take CUDA tensors"
        if capability(tensor.device) < SMALLEST_CAPABILITY:
            return (
                f"compute capability {capability(tensor.device)} of {tensor.device}; "
                f"its kernels need {SMALLEST_CAPABILITY} (A100) or above"
            )
    for width in widths:
        if width not in WIDTHS:
            return f"head width {width}; its kernels take {', '.join(map(str, WIDTHS))}"
    return None


def why_auto_avoids_triton(
    tensors: Sequence[Tensor], widths: Sequence[int]
) -> str | None:
    """The reason why ``backend="auto"`` takes torch for these inputs, or None.

    Everything does while the kernels are not verified. Later float32 does unless TF32
    is allowed: IEEE products have no tensor cores.
    The interpreter is for tests and has to be asked for.
    """
    if INTERPRETED:
        return "the interpreter runs on request only"
    if not VERIFIED_ON_A_GPU:
        return "the kernels have not been verified on a GPU yet"
    if tensors[0].dtype == torch.float32 and not tf32_is_allowed():
        return "float32 with TF32 off"
    return why_triton_cannot_run(tensors, widths)


@constant_when_compiled
def tf32_is_allowed() -> bool:
    """Whether torch multiplies float32 matrices in TF32."""
    matmul = torch.backends.cuda.matmul
    # from torch 2.9 on; there allow_tf32 cannot be read once this has been set
    if hasattr(matmul, "fp32_precision"):
        return matmul.fp32_precision == "tf32"
    return matmul.allow_tf32


@functools.cache
@constant_when_compiled
def capability(device: torch.device) -> tuple[int, int]:
    """Compute capability of a CUDA device; (0, 0) of others, for the interpreter."""
    if device.type != "cuda":
        return (0, 0)
    return torch.cuda.get_device_capability(device)


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """How many multiprocessors a CUDA device has; an A100's number for others."""
    if device.type != "cuda":
        return 108
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
@constant_when_compiled
def _triton_is_installed() -> bool:
    return importlib.util.find_spec("triton") is not None
