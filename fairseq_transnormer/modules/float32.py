"""Modules that must stay in float32 when a model is in half precision."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

HALVES = (torch.float16, torch.bfloat16)


class Float32Module(nn.Module):
    """Keeps its parameters and buffers in float32 in a half-precision model.

    ``.half()`` and ``.bfloat16()`` do not change them; devices and float64 work as
    usual. ``check_float32`` raises if other code casts them, such as FSDP's mixed
    precision.
    """

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> "Float32Module":
        def keep_float32(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            if moved.dtype in HALVES:
                return tensor.to(moved.device)
            return moved

        return super()._apply(keep_float32, recurse)

    def check_float32(self, tensor: Tensor) -> None:
        """Raise ValueError if one of its parameters or buffers is in half precision."""
        if tensor.dtype in HALVES:
            raise ValueError(
                f"{type(self).__name__} has {tensor.dtype} numbers; allowed: float32. "
                "FSDP: give each of float32_modules(model), of modules/float32.py, a "
                "fully_shard of its own without mixed precision, before its layer"
            )


def float32_modules(model: nn.Module) -> list[Float32Module]:
    """The modules of a model that must stay in float32, in its order."""
    return [each for each in model.modules() if isinstance(each, Float32Module)]


def exact_dtype() -> torch.dtype:
    """torch's default dtype; float32 if that is a half precision."""
    default = torch.get_default_dtype()
    return torch.float32 if default in HALVES else default
