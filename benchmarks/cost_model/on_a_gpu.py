"""Fake tensors of which torch and Triton's launches think as of a GPU's."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from fairseq_transnormer.ops import backend as backends
from fairseq_transnormer.ops import linear_cross_entropy
from fairseq_transnormer.ops.linear_attention import chunks, torch_impl


@contextlib.contextmanager
def as_on_a_gpu(products: bool = True) -> Iterator[None]:
    """What a GPU does otherwise than a CPU is done as there: dropout is one kernel,
    torch's linear attention sums up its states by a scan, and the output layer's
    gradients are added to float32 ones within their products.

    Args:
        products: whether ``backend="auto"`` takes Triton's kernels that multiply
            matrices, as on an A100 and later where all trials pass; a V100 does not.
    """
    scan = torch_impl._sums_by_scan
    output_layer = sys.modules[linear_cross_entropy.__module__]
    with (
        FakeTensorMode(),
        mock.patch.object(F, "dropout", _dropout),
        mock.patch.object(torch_impl, "_sums_by_addition", scan),
        # a tile is a segment there
        mock.patch.object(chunks, "TILE_ELEMENTS", sys.maxsize),
        mock.patch.object(output_layer, "_add_product", _add_product),
        # tensors may be the CPU's; nothing is launched
        mock.patch.object(backends, "INTERPRETED", True),
        mock.patch.object(backends, "why_auto_avoids_triton", _rule(products)),
    ):
        yield


def _dropout(x, p=0.5, training=True, inplace=False):
    return torch.native_dropout(x, p, training)[0] if training and p else x


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """``ops.linear_cross_entropy``'s, where torch adds products to wide sums."""
    wide = {} if a.dtype == total.dtype else {"out_dtype": total.dtype}
    torch.addmm(total, a, b, **wide, out=total)


def _rule(products: bool) -> Callable:
    """``backends.why_auto_avoids_triton`` without TF32, where all trials pass."""

    def why_avoided(tensors, kernels: backends.Kernels) -> str | None:
        exact = tensors[0].dtype == torch.float32
        if kernels.products and (exact or not products):
            return "products of matrices"
        return backends.why_triton_cannot_run(tensors, kernels)

    return why_avoided
