"""An op made of two functions that launch kernels, for eager mode and torch.compile.

Eager mode takes an autograd.Function, which costs the host least. torch.compile cannot
look into a launch and must not trace one: there the same two functions are custom
operators, which it calls as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .launching import shapes_only

_NAMESPACE = "fairseq_transnormer"


def differentiable(
    name: str,
    forward: Callable,
    forward_schema: str,
    backward: Callable,
    backward_schema: str,
    *,
    save: Callable,
    gradients: Callable,
    results: int,
) -> Callable:
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
        if torch.compiler.is_compiling():
            return _as_tuple(operator(*arguments))[:results]
        return Function.apply(*arguments)

    return call


def in_place(
    name: str, step: Callable, schema: str, mutates: tuple[str, ...]
) -> Callable:
    """``step``, which autograd does not see, as a function of its arguments."""
    operator = _custom_operator(name, step, schema, mutates)

    def call(*arguments):
        if torch.compiler.is_compiling():
            return _as_tuple(operator(*arguments))
        return step(*arguments)

    return call


def _custom_operator(
    name: str, function: Callable, schema: str, mutates: tuple[str, ...] = ()
):
    """``function``, which returns a tuple of new tensors, as a custom operator.

    mutates: the arguments, all tensors, that it writes into.
    """

    def complete(*arguments):
        outputs = [
            arguments[0].new_empty(0) if x is None else x for x in function(*arguments)
        ]
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
    return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
