"""Check that modules are unmodified, so that one op may compute several of them."""

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module


def all_plain(
    kind: type[nn.Module], *modules: nn.Module, with_bias: bool = True
) -> bool:
    """Whether each module is a ``kind``, not a subclass, and without hooks.

    Wrappers (LoRA, quantisation) replace the module or its ``forward``. fairseq's
    quant_noise sets a hook. An op for several modules would ignore these.

    with_bias: whether modules must have a bias, if their class has the choice.
    """
    return not torch_module._has_any_global_hook() and all(
        type(module) is kind
        and "forward" not in vars(module)
        and not (with_bias and module._parameters.get("bias", True) is None)
        and not (module._forward_hooks or module._forward_pre_hooks)
        and not (module._backward_hooks or module._backward_pre_hooks)
        for module in modules
    )


def are_one(merged: tuple[Tensor, Tensor], *layers: nn.Linear) -> bool:
    """Whether weight and bias stand for plain layers that are still views of them."""
    parts = (whole.chunk(len(layers)) for whole in merged)
    return (
        not (torch.is_grad_enabled() or torch.compiler.is_compiling())
        and all_plain(nn.Linear, *layers)
        and all(
            layer.weight.data_ptr() == weight.data_ptr()
            and layer.bias.data_ptr() == bias.data_ptr()
            for layer, weight, bias in zip(layers, *parts, strict=True)
        )
    )
