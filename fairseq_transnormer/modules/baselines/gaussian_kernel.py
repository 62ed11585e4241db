"""The Gaussian kernel that Kernelized Attention and Skyformer put for exp(q . k)."""

from torch import Tensor


def gaussian_kernel(x: Tensor, y: Tensor) -> Tensor:
    """exp(-|x_i - y_j|^2 / (2 sqrt(d))): (..., N, d), (..., M, d) -> (..., N, M)."""
    scale = x.shape[-1] ** -0.5
    x_square, y_square = (z.square().sum(-1) * (scale / 2) for z in (x, y))
    exponent = scale * x @ y.transpose(-1, -2)
    exponent = exponent - x_square.unsqueeze(-1) - y_square.unsqueeze(-2)
    # rounding may leave a distance below zero
    return exponent.clamp(max=0).exp()
