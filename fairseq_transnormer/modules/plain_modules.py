"""Whether modules do what their class says, so that an op may compute several."""

from torch import nn
from torch.nn.modules import module as torch_module

_HOOKS = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks"),
    "_backward_pre_hooks",
)


def all_plain(kind: type[nn.Module], *modules: nn.Module) -> bool:
    """Whether each module is a ``kind``, no subclass of it, with a bias, without hooks.

    What wraps a layer (LoRA, quantisation) replaces the module or its ``forward``, and
    fairseq's quant_noise hooks it: they would be passed over.
    """
    return not torch_module._has_any_global_hook() and all(
        type(module) is kind
        and "forward" not in vars(module)
        and getattr(module, "bias", True) is not None
        and not any(getattr(module, name) for name in _HOOKS)
        for module in modules
    )
