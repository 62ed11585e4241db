"""Models as safetensors and JSON, for plain PyTorch: no fairseq, no pickle.

    python -m fairseq_transnormer export checkpoints/checkpoint_best.pt --dest exported

    exported = load_exported("exported")
    logits = exported.model(tokens)
    text = exported.continue_text("The river", top_p=0.9, seed=1)

docs/checkpoints.md has the format.
"""

from .errors import ExportError
from .loading import Exported, load_exported

__all__ = ["ExportError", "Exported", "load_exported"]
