"""How an op computes: by which implementation, where, and in which precision.

Every public op takes ``backend``. An implementation is a function with the op's own
signature; an op names its implementations in a dict, and this file picks one. In which
dtype the ops sum is decided here too, so that no caller has to know. Imports no Triton.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from .verdicts import why_kernels_are_avoided

BACKENDS = ("auto", "torch", "triton", "reference")
ENVIRONMENT_VARIABLE = "FAIRSEQ_TRANSNORMER_BACKEND"
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
WIDTHS = (32, 64, 128)
# A100 for kernels that multiply matrices: Triton has no tensor cores before it; V100
# for the others
PRODUCTS_CAPABILITY, ROWS_CAPABILITY = (8, 0), (7, 0)
# bytes, and elements of a stride, of which Triton takes multiples to be aligned
ALIGNMENT = 16
TRITON_IS_INSTALLED = importlib.util.find_spec("triton") is not None
# Triton's interpreter runs the kernels on the CPU; read when Triton is imported
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# whether "auto" treats the interpreter as a GPU, for tests
INTERPRETER_IS_A_DEVICE = False
_LIKE_CAPTURED: ContextVar[bool] = ContextVar("like_captured", default=False)

# of an op; it has the op's signature
Implementation = TypeVar("Implementation")
Function = TypeVar("Function", bound=Callable[..., Any])


class BackendError(ValueError):
    """A backend is not known, or cannot run where it is asked for."""


class Kernels(NamedTuple):
    """The Triton kernels that a call of an op would launch.

    Attributes:
        op: the op's name.
        options: what they are compiled for besides dtype and alignment, by name; called
            where it is needed.
        widths: head widths that they must have.
        products: whether they multiply matrices.
        unless: what they cannot do of this call, or None.
    """

    op: str
    options: Callable[[], Mapping[str, Any]] = dict
    widths: Sequence[int] = ()
    products: bool = True
    unless: str | None = None


def resolve_backend(backend: str) -> str:
    """The backend that is asked for, which may still be ``"auto"``.

    ``"auto"`` follows the environment variable ``FAIRSEQ_TRANSNORMER_BACKEND`` where
    it is set and not empty. A name passed by the caller wins over the environment.

    Raises:
        BackendError: the name, or the environment variable's value, is not known.
    """
    _check(backend, "backend")
    if backend == "auto" and (asked_for := os.environ.get(ENVIRONMENT_VARIABLE)):
        backend = asked_for
        _check(backend, f"environment variable {ENVIRONMENT_VARIABLE}")
    return str(backend)


def select(
    implementations: Mapping[str, Implementation],
    backend: str,
    tensors: Sequence[Tensor],
    kernels: Callable[[], Kernels],
) -> Implementation:
    """The implementation of an op that ``backend`` stands for.

    ``"auto"`` takes Triton on CUDA devices, for what the kernels have and what a trial
    there has found right (``verdicts``). It takes torch for everything else.
    ``"triton"`` insists.

    Args:
        implementations: the op's, by name.
        backend: what the caller passed.
        tensors: inputs, for device, dtype and alignment.
        kernels: tells what Triton would launch; asked where it might.

    Raises:
        BackendError: a name is not known, or ``"triton"`` is asked for where it cannot
            run; the message says why.
    """
    name = resolve_backend(backend)
    if name == "triton":
        reason = why_triton_cannot_run(tensors, kernels())
        if reason is not None:
            field = "backend" if backend == "triton" else ENVIRONMENT_VARIABLE
            raise BackendError(f"{field}='triton': {reason}")
    elif name == "auto":
        name = "torch"
        if is_for_triton(tensors[0]) and (
            why_auto_avoids_triton(tensors, kernels()) is None
        ):
            name = "triton"
    return implementations[name]


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 stays float64; everything else is summed in float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def unscaled_output_dtype(dtype: torch.dtype) -> torch.dtype:
    """dtype of an attention output that is a sum and no average.

    Such a sum grows with the length and passes float16's largest number, 65,504,
    within the paper's 512 tokens, so float16 inputs give a float32 output. The norm
    that follows brings it back.
    """
    return torch.float32 if dtype == torch.float16 else dtype


def product_dtype(x: Tensor) -> torch.dtype:
    """In which dtype ``F.linear`` multiplies x: autocast's, where it is on."""
    if autocast_enabled(x) and x.dtype != torch.float64:
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype


def autocast_enabled(tensor: Tensor) -> bool:
    """Whether autocast is on for the tensor's device, which may have none ("meta")."""
    kind = tensor.device.type
    return has_autocast(kind) and torch.is_autocast_enabled(kind)


def autocast_disabled(tensor: Tensor) -> AbstractContextManager[Any]:
    """Context in which autocast leaves the float32 sums alone."""
    if not autocast_enabled(tensor):
        # entering and leaving costs as much as the smallest of the sums
        return nullcontext()
    return torch.autocast(device_type=tensor.device.type, enabled=False)


def needs_gradient(*tensors: Tensor | None) -> bool:
    """Whether autograd records what is made of these tensors."""
    return torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in tensors
    )


def steps_in_place(state: Iterable[Tensor | None], *inputs: Tensor | None) -> bool:
    """Whether a one-token call writes into its state: nothing needs a gradient.

    Nor can it outside ``torch.inference_mode`` where the state was made inside it.
    """
    tensors = tuple(state)
    if needs_gradient(*inputs, *tensors):
        return False
    if torch.compiler.is_compiling() or torch.is_inference_mode_enabled():
        return True
    return not any(x is not None and x.is_inference() for x in tensors)


def constant_when_compiled(function: Function) -> Function:
    """``torch.compiler.assume_constant_result`` without its import of torch._dynamo.

    That takes more than a second of every process, compiling or not.
    """
    vars(function)["_dynamo_marked_constant"] = True
    return function


def is_for_triton(tensor: Tensor) -> bool:
    """Whether its device is one that Triton's kernels run on."""
    return tensor.is_cuda or INTERPRETED


def is_captured(tensor: Tensor) -> bool:
    """Whether what is launched for it becomes a CUDA graph, with the host's numbers."""
    return tensor.is_cuda and (
        _LIKE_CAPTURED.get() or torch.cuda.is_current_stream_capturing()
    )


@contextmanager
def like_captured() -> Iterator[None]:
    """Context in which ops compute, and draw numbers, as in a CUDA graph."""
    token = _LIKE_CAPTURED.set(True)
    try:
        yield
    finally:
        _LIKE_CAPTURED.reset(token)


def why_triton_cannot_run(tensors: Sequence[Tensor], kernels: Kernels) -> str | None:
    """The reason why the kernels cannot take this call, or None."""
    if kernels.unless is not None:
        return kernels.unless
    if not TRITON_IS_INSTALLED:
        return "the package triton is not installed"
    needed = PRODUCTS_CAPABILITY if kernels.products else ROWS_CAPABILITY
    for tensor in tensors:
        if tensor.dtype not in DTYPES:
            return f"{tensor.dtype}; its kernels take {', '.join(map(str, DTYPES))}"
        if INTERPRETED:
            continue
        if not tensor.is_cuda:
            return f"a tensor on {tensor.device}; its kernels take CUDA tensors"
        found = capability(tensor.device)
        if found < needed:
            return f"compute capability {found} of {tensor.device}; needed: {needed}"
        if tensor.dtype == torch.bfloat16 and found < PRODUCTS_CAPABILITY:
            return f"torch.bfloat16 on {tensor.device}, of compute capability {found}"
    for width in kernels.widths:
        if width not in WIDTHS:
            return f"head width {width}; its kernels take {', '.join(map(str, WIDTHS))}"
    return None


def why_auto_avoids_triton(tensors: Sequence[Tensor], kernels: Kernels) -> str | None:
    """The reason why ``backend="auto"`` takes torch for this call, or None.

    Products of float32 go to torch unless TF32 is allowed: exact ones have no tensor
    cores. The interpreter is for tests and has to be asked for. For what is left there
    are ``verdicts``.
    """
    if INTERPRETED and not INTERPRETER_IS_A_DEVICE:
        return "the interpreter runs on request only"
    first = tensors[0]
    if first.dtype == torch.float32 and kernels.products and not tf32_is_allowed():
        return "float32 with TF32 off"
    reason = why_triton_cannot_run(tensors, kernels)
    if reason is not None:
        return reason
    options = {**kernels.options(), "aligned": _are_aligned(tensors)}
    return _why_kernels_are_avoided(
        kernels.op, first.dtype, first.device, tuple(options.items())
    )


def _are_aligned(tensors: Sequence[Tensor]) -> bool:
    """Whether Triton compiles wide loads for these tensors.

    What torch.compile hands over, which may leave sizes open, is taken to be aligned.
    """
    if torch.compiler.is_compiling():
        return True
    return not any(
        math.gcd(x.storage_offset() * x.itemsize, *x.stride()[:-1]) % ALIGNMENT
        for x in tensors
    )


_why_kernels_are_avoided = constant_when_compiled(why_kernels_are_avoided)


@constant_when_compiled
def has_autocast(kind: str) -> bool:
    """Whether devices of this kind have autocast; torch 2.11 cannot compile the ask."""
    return torch.amp.is_autocast_available(kind)


@constant_when_compiled
def tf32_is_allowed() -> bool:
    """Whether torch multiplies float32 matrices in TF32."""
    matmul = torch.backends.cuda.matmul
    # from torch 2.9 on; there allow_tf32 cannot be read once this has been set
    if hasattr(matmul, "fp32_precision"):
        return matmul.fp32_precision == "tf32"
    return matmul.allow_tf32


@constant_when_compiled
def capability(device: torch.device) -> tuple[int, int]:
    """Compute capability of a CUDA device; (0, 0) of others, for the interpreter."""
    return _known_of(device)[0]


@constant_when_compiled
def multiprocessors(device: torch.device) -> int:
    """How many multiprocessors a CUDA device has; an A100's number for others."""
    return _known_of(device)[1]


@functools.cache
def _known_of(device: torch.device) -> tuple[tuple[int, int], int]:
    if device.type != "cuda":
        return (0, 0), 108
    known = torch.cuda.get_device_properties(device)
    return (known.major, known.minor), known.multi_processor_count


def _check(name: str, field: str) -> None:
    if name not in BACKENDS:
        raise BackendError(f"{field}={name!r}; allowed: {', '.join(BACKENDS)}")
