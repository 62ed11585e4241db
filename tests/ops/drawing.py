"""Random inputs of the attention ops, and how errors are measured."""

import torch
import torch.nn.functional as F

# Triton's kernels have tests of their own: they need a GPU or the interpreter.
CPU_BACKENDS = ("torch", "reference")


def draw_qkv(
    length,
    *,
    batch=2,
    heads=2,
    width=4,
    value_width=None,
    key_length=None,
    dtype=torch.float64,
):
    """query, key (positive, as 1+elu makes them) and value."""
    key_length = length if key_length is None else key_length
    value_width = width if value_width is None else value_width
    query, key = (
        (F.elu(torch.randn(batch, n, heads, width)) + 1).to(dtype)
        for n in (length, key_length)
    )
    value = torch.randn(batch, key_length, heads, value_width).to(dtype)
    return query, key, value


def draw_signed(length, **options):
    """Queries and keys of both signs, so that ReLU has something to cut."""
    query, key, value = draw_qkv(length, **options)
    return query - 1, key - 1, value


def draw_mask(batch, length):
    """Pads anywhere; one row without any and, from three rows on, one of pads only."""
    mask = torch.rand(batch, length) < 0.3
    mask[0] = False
    if batch > 2:
        mask[-1] = True
    return mask


def relative_error(value, expected):
    """|value - expected| / |expected| over all elements."""
    expected = expected.double()
    return ((value.double() - expected).norm() / expected.norm()).item()


def gradients(function, tensors, weight):
    """Gradients of sum(weight * function(*tensors)) in the tensors."""
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    output = function(*leaves)
    (output * weight.to(output.dtype)).sum().backward()
    return [leaf.grad for leaf in leaves]
