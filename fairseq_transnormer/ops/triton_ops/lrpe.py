"""Launches LRPE's kernels; ``ops.lrpe`` says what is computed."""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from .launching import empty_with_rows_like, with_contiguous_rows
from .lrpe_kernels import encode_backward_kernel, encode_kernel

# elements of a program's tile: 16 for each thread of 4 warps
TILE = 2048
NUM_WARPS = 4
# with fewer programs than this, each takes one head, so that more of them share
FEW_PROGRAMS = 256


def lrpe(
    query: Tensor,
    key: Tensor,
    theta: Tensor,
    reflection: Tensor,
    positions: Tensor,
    *,
    feature_map: str,
) -> tuple[Tensor, Tensor]:
    """``ops.lrpe`` for head widths 32, 64 and 128."""
    return _LRPE.apply(query, key, theta, reflection, positions, feature_map)


class _LRPE(torch.autograd.Function):
    """Saves its inputs: phi'(x) cannot be had from the output."""

    @staticmethod
    def forward(ctx, query, key, theta, reflection, positions, feature_map):
        query, key = with_contiguous_rows(query), with_contiguous_rows(key)
        theta, reflection = theta.contiguous(), reflection.contiguous()
        ctx.save_for_backward(query, key, theta, reflection, positions)
        ctx.feature_map = feature_map
        outputs = empty_with_rows_like(query), empty_with_rows_like(key)
        _launch(
            encode_kernel,
            (query, key, *outputs),
            (theta, reflection, positions),
            feature_map,
        )
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_query_out, grad_key_out):
        query, key, *parameters = ctx.saved_tensors
        theta = parameters[0]
        grads = empty_with_rows_like(query), empty_with_rows_like(key)
        grads_out = map(with_contiguous_rows, (grad_query_out, grad_key_out))
        partial_grad_theta = _launch(
            encode_backward_kernel,
            (query, key, *grads_out, *grads),
            parameters,
            ctx.feature_map,
            backward=True,
        )
        grad_theta = partial_grad_theta.sum(0).to(theta.dtype)
        return *grads, grad_theta, None, None, None


def _launch(kernel, tensors, parameters, feature_map, *, backward=False):
    """Run ``kernel`` on (B, N, H, D) tensors; the partial sums of d theta, if any."""
    query = tensors[0]
    theta, reflection, positions = parameters
    batch, length, heads, width = query.shape
    block = TILE // width
    blocks = triton.cdiv(batch * length, block)
    heads_a_program = 1 if blocks < FEW_PROGRAMS else heads
    grid = blocks, triton.cdiv(heads, heads_a_program)
    partial_grad_theta = None
    if backward:
        partial_grad_theta = torch.empty(
            grid[0] * grid[1], width // 2, dtype=torch.float32, device=query.device
        )
        tensors_and_sums = (*tensors, partial_grad_theta)
    else:
        tensors_and_sums = tensors
    strides = [stride for tensor in tensors for stride in tensor.stride()[:3]]
    with torch.cuda.device_of(query):
        kernel[grid](
            *tensors_and_sums,
            theta,
            reflection,
            positions,
            batch * length,
            length,
            heads,
            heads_a_program,
            *strides,
            *positions.expand(batch, length).stride(),
            PHI=feature_map,
            WIDTH=width,
            BLOCK=block,
            num_warps=NUM_WARPS,
        )
    return partial_grad_theta
