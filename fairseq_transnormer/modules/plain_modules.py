"""Whether modules do what their class says, so that an op may compute several."""

from torch import nn
from torch.nn.modules import module as torch_module


def all_plain(
    kind: type[nn.Module], *modules: nn.Module, with_bias: bool = True
) -> bool:
    """Whether each module is a ``kind``, no subclass of it, without hooks.

    What wraps a layer (LoRA, quantisation) replaces the module or its ``forward``, and
    fairseq's quant_noise hooks it: they would be passed over.

    with_bias: where the class may have a bias, whether this one must.
    """
    return not torch_module._has_any_global_hook() and all(
        type(module) is kind
        and "forward" not in vars(module)
        and not (with_bias and module._parameters.get("bias", True) is None)
        and not (module._forward_hooks or module._forward_pre_hooks)
        and not (module._backward_hooks or module._backward_pre_hooks)
        for module in modules
    )
