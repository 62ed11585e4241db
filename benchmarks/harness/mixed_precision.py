"""Adam as fairseq's --bf16 and --fp16 run it: on float32 copies of the weights."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class MasterAdam:
    """torch's Adam on float32 copies of half-precision weights.

    float32 weights are updated as they are. fairseq's own Adam does the same sums in
    many launches for each parameter; this one costs little, so that the models show.

    Args:
        parameters: those without ``requires_grad`` are left out.
        learning_rate: of Adam.
    """

    def __init__(self, parameters: Iterable[Tensor], learning_rate: float = 1e-5):
        trained = [p for p in parameters if p.requires_grad]
        self.weights = trained
        self.halves = [p for p in trained if p.dtype != torch.float32]
        self.copies = [p.detach().float() for p in self.halves]
        whole = [p for p in trained if p.dtype == torch.float32]
        cuda = trained[0].is_cuda
        self.adam = torch.optim.Adam([*self.copies, *whole], learning_rate, fused=cuda)
        # Adam makes its sums in its first step: now, by one that changes nothing
        for p in (*self.copies, *whole):
            p.grad = torch.zeros_like(p)
        self.adam.step()
        for state in self.adam.state.values():
            state["step"].zero_()
        self.zero_grad()

    def zero_grad(self) -> None:
        """Give all gradients' memory back."""
        for p in (*self.weights, *self.copies):
            p.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update the weights by their gradients."""
        for half, copy in zip(self.halves, self.copies, strict=True):
            copy.grad = half.grad.float()
            half.grad = None
        self.adam.step()
        if self.halves:
            torch._foreach_copy_(self.halves, self.copies)
