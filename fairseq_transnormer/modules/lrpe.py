"""LRPE as a module: the learned angles and the fixed direction of one layer."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .. import ops
from .float32 import Float32Module, exact_dtype
from .options import Choice


class RelativePosition(Choice, values=("lrpe", "none")):
    """How diag and norm attention encode the positions of queries and keys."""


def build_lrpe(config: Any, head_dim: int) -> "LRPE | None":
    """The position encoding of a layer, or None for relative_position "none"."""
    if config.relative_position == "none":
        return None
    return LRPE(head_dim, config.lrpe_base, config.backend)


class LRPE(Float32Module):
    """Position encoding of queries and keys; shared by the heads of a layer.

    y = R(position * theta) (I - 2 v v^T) x: see ``ops.lrpe``. Both parameters stay in
    float32 in a half-precision model. Otherwise an angle at position 511 would be wrong
    by several radians.

    Args:
        head_dim: even.
        base: theta starts as base^(-2 i / head_dim), i = 0 ... head_dim / 2 - 1.
        backend: see ``ops.lrpe``.

    Raises:
        ValueError: head_dim is odd.
    """

    def __init__(self, head_dim: int, base: float = 10000.0, backend: str = "auto"):
        super().__init__()
        if head_dim % 2:
            raise ValueError(
                f"head_dim={head_dim}; allowed: even head widths, since LRPE turns "
                "pairs, or relative_position='none'"
            )
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        self.theta = nn.Parameter(base**-exponents)
        direction = torch.randn(head_dim, dtype=exact_dtype())
        # an untrained parameter, which the paper's counts include
        self.reflection = nn.Parameter(direction / direction.norm(), False)
        self.backend = backend

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        positions: Tensor,
        feature_map: str = "identity",
    ) -> tuple[Tensor, Tensor]:
        """Encode queries and keys after their feature map.

        Args:
            query, key: (B, N, H, head_dim).
            positions: (N,) or (B, N), int64.
            feature_map: applied first; see ``ops.lrpe``.

        Returns:
            query and key encoded, in their shape and dtype.

        Raises:
            ValueError: the angles are in half precision.
        """
        self.check_float32(self.theta)
        return ops.lrpe(
            query,
            key,
            self.theta,
            self.reflection,
            positions,
            feature_map=feature_map,
            backend=self.backend,
        )

    if TYPE_CHECKING:
        __call__ = forward
