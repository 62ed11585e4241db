"""How far two implementations are apart."""

import torch
from torch import Tensor

WIDTH, HEADS, ROWS = 16, 2, 3


def draw(length: int) -> Tensor:
    """Rows of ``length`` tokens, float64 (ROWS, length, WIDTH)."""
    return torch.randn(ROWS, length, WIDTH, dtype=torch.float64)


def assert_same(what: str, found: Tensor, expected: Tensor, most: float) -> None:
    """Assert a relative difference up to ``most``, and print it (pytest -rP)."""
    difference = relative_difference(found, expected)
    print(f"{what}: {difference:.1g}")
    assert difference < most


def relative_difference(found: Tensor, expected: Tensor) -> float:
    """|found - expected| over |expected|."""
    assert found.shape == expected.shape
    return ((found - expected).norm() / expected.norm()).item()
