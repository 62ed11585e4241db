"""Every attention and layer of this package: importing one registers it."""

import importlib
import pkgutil

from . import attention_pairs, baselines, diag_attention, norm_attention

__all__ = ["attention_pairs", "diag_attention", "norm_attention"]

# a file in baselines/ is all that a new system needs
for _found in pkgutil.iter_modules(baselines.__path__, f"{baselines.__name__}."):
    importlib.import_module(_found.name)
