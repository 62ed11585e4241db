"""Launches of kernels: layouts, devices, and the ops that are made of them.

Letters: B batch, N length, H heads, D head width.

An op is made of two functions that launch kernels. Eager mode takes an
autograd.Function of them, which costs the host least. torch.compile cannot look into a
launch and must not trace one: there the same two functions are custom operators, which
it calls as they are. So they are wherever something else than the device is to see the
op: under a dispatch mode, and for tensors without memory.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from ..derivatives import once_differentiable
from ..inputs import check_memory_of_rows

_NAMESPACE = "fairseq_transnormer"
_thread = threading.local()
# elements from a token to the next with which offsets in a tile of 64 fit 32 bits
FARTHEST_TOKEN = 2**31 // 64


@contextlib.contextmanager
def shapes_only(
    record: Callable[..., Any] = lambda kernel, arguments: None,
) -> Iterator[None]:
    """Inside, launch() launches nothing: outputs have shapes and strides, no values.

    torch.compile asks for these with tensors that have no memory.

    Args:
        record: is called with the kernel and its arguments instead.
    """
    outer = getattr(_thread, "record", None)
    _thread.record = record
    try:
        yield
    finally:
        _thread.record = outer


def launch(kernel, grid: tuple[int, ...], *arguments, **options) -> None:
    """Launch ``kernel`` on the device of its first tensor."""
    record = getattr(_thread, "record", None)
    if record is not None:
        record(kernel, arguments)
        return
    tensor = next(x for x in arguments if x is not None)
    if isinstance(tensor, tuple):
        tensor = tensor[0]
    # kernels are launched on the current device, whatever device the tensors are on
    with torch.cuda.device_of(tensor):
        kernel[grid](*arguments, **options)


def strides(tensors: Iterable[Tensor]) -> tuple[tuple[int, ...], ...]:
    """All strides but the last, which must be 1, of each, as one argument of a kernel.

    Triton specialises the integers of a tuple, whatever ``do_not_specialize`` says: it
    compiles anew where one becomes 1 or a multiple of 16. Lengths are arguments of
    their own, so that a new one compiles nothing.
    """
    return tuple(x.stride()[:-1] for x in tensors)


def with_contiguous_rows(x: Tensor) -> Tensor:
    """x, copied only if its last dimension is not contiguous."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def with_near_tokens(x: Tensor) -> Tensor:
    """x with contiguous rows, copied if its tokens are farther than FARTHEST_TOKEN."""
    x = with_contiguous_rows(x)
    return x if x.stride(1) <= FARTHEST_TOKEN else x.contiguous()


def required(x: Tensor | None) -> Tensor:
    """x, an argument that this kind of call has.

    Raises:
        TypeError: it is None.
    """
    if x is None:
        raise TypeError("None for a tensor that the call needs")
    return x


def writable_rows(state: Tensor) -> Tensor:
    """state as a kernel can write it: with_contiguous_rows.

    Raises:
        ValueError: rows of the batch share memory, which each would write.
    """
    check_memory_of_rows(state)
    return with_contiguous_rows(state)


def write_back(rows: Tensor, state: Tensor) -> None:
    """Put what was written into ``writable_rows(state)`` into the state."""
    if rows is not state:
        state.copy_(rows)
    else:
        # a backward pass that still needs the old values must raise
        torch.autograd.graph.increment_version(state)


def empty_with_rows_like(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Room for a result in the layout of x, its last dimension contiguous.

    dtype: None for that of x.
    """
    room = torch.empty_like(x, dtype=dtype)
    if room.stride(-1) == 1:
        return room
    # x overlaps itself
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


def empty_rows(like: Tensor, length: int, width: int, dtype: torch.dtype) -> Tensor:
    """(B, length, H, width), in fairseq's T x B x C order where ``like`` has
    it and the tokens are near enough."""
    batch, _, heads, _ = like.shape
    near = batch * heads * width <= FARTHEST_TOKEN
    if near and like.stride(0) < like.stride(1):
        return like.new_empty((length, batch, heads, width), dtype=dtype).transpose(
            0, 1
        )
    return like.new_empty((batch, length, heads, width), dtype=dtype)


def differentiable(
    name: str,
    forward: Callable[..., Any],
    forward_schema: str,
    backward: Callable[..., Any],
    backward_schema: str,
    *,
    save: Callable[..., Any],
    gradients: Callable[..., Any],
    results: int,
) -> Callable[..., Any]:
    """A function of ``forward``'s arguments that autograd can differentiate once.

    Args:
        name: of the custom operator.
        forward: arguments to a tuple of new tensors; None for one that is left out.
        backward: the same, for the gradients.
        forward_schema, backward_schema: of the custom operators, as torch writes them.
        save: (ctx, arguments, outputs of forward), keeps what the gradients need.
        gradients: (ctx, backward, *gradients of outputs) to those of the arguments.
            It calls the ``backward`` that it is given. A gradient may be None.
        results: how many of forward's outputs are for the caller, from the first.

    Returns:
        a function that returns a tuple of the results; under torch.compile an empty
        tensor stands for None.
    """

    def input_gradients(ctx, backward, *grads):
        if all(grad is None for grad in grads):
            # autograd asks although no gradient reached any of the outputs
            return (None,) * len(ctx.needs_input_grad)
        return gradients(ctx, backward, *grads)

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *arguments):
            outputs = forward(*arguments)
            save(ctx, arguments, outputs)
            ctx.set_materialize_grads(False)
            return outputs[:results]

        @staticmethod
        @once_differentiable
        def backward(ctx, *grads):
            return input_gradients(ctx, backward, *grads)

    operator = _custom_operator(name, forward, forward_schema)
    backward_operator = _custom_operator(f"{name}_backward", backward, backward_schema)

    def setup_context(ctx, inputs, output):
        save(ctx, inputs, _as_tuple(output))
        ctx.set_materialize_grads(False)

    operator.register_autograd(
        lambda ctx, *grads: input_gradients(
            ctx,
            lambda *arguments: _as_tuple(backward_operator(*arguments)),
            *grads[:results],
        ),
        setup_context=setup_context,
    )

    def call(*arguments):
        if _is_watched(arguments):
            return _as_tuple(operator(*arguments))[:results]
        return Function.apply(*arguments)

    return call


def in_place(
    name: str, step: Callable[..., Any], schema: str, mutates: tuple[str, ...]
) -> Callable[..., Any]:
    """``step``, which autograd does not see, as a function of its arguments."""
    operator = _custom_operator(name, step, schema, mutates)

    def call(*arguments):
        if _is_watched(arguments):
            return _as_tuple(operator(*arguments))
        return step(*arguments)

    return call


def _is_seen_by_a_mode() -> bool:
    """Whether a dispatch mode is to see the ops, and not what they are made of."""
    return torch._C._len_torch_dispatch_stack() > 0 and not all(
        getattr(mode, "sees_into_ops", False)
        for mode in _get_current_dispatch_mode_stack()
    )


def _is_watched(arguments: tuple[Any, ...]) -> bool:
    """Whether a compiler, a dispatch mode or a tensor looks at the ops that are called.

    Such a tensor is more than memory, as a FakeTensor is.
    """
    return (
        torch.compiler.is_compiling()
        or _is_seen_by_a_mode()
        or any(
            isinstance(x, Tensor)
            and type(x).__torch_dispatch__ is not Tensor.__torch_dispatch__
            for x in arguments
        )
    )


def _custom_operator(
    name: str, function: Callable[..., Any], schema: str, mutates: tuple[str, ...] = ()
):
    """``function``, which returns a tuple of new tensors, as a custom operator.

    mutates: the arguments, all tensors, that it writes into.
    """

    def complete(*arguments):
        some = next(x for x in arguments if isinstance(x, Tensor))
        outputs = [some.new_empty(0) if x is None else x for x in function(*arguments)]
        if not outputs:
            return None
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def without_launch(*arguments):
        with shapes_only():
            return complete(*arguments)

    operator = torch.library.custom_op(
        f"{_NAMESPACE}::{name}", complete, mutates_args=mutates, schema=schema
    )
    operator.register_fake(without_launch)
    return operator


def _as_tuple(outputs) -> tuple[Tensor, ...]:
    """What a custom operator returns, which is no tuple where it is one tensor."""
    if outputs is None:
        return ()
    return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
