"""Log-probability, perplexity and bits a byte of texts, by a trained model.

    scorer = TextScorer.from_checkpoint("checkpoints/checkpoint_best.pt")
    for found in scorer.score(["The river is long.", "Long the is river."]):
        print(found.log_prob, found.perplexity, found.bits_per_byte)

On the command line: ``python -m fairseq_transnormer score --help``.
"""

from typing import TYPE_CHECKING

from .context import Context
from .errors import ScoringError
from .text_score import TextScore

if TYPE_CHECKING:
    from .scorer import TextScorer

__all__ = ["Context", "ScoringError", "TextScore", "TextScorer"]


def __getattr__(name: str):
    """fairseq is imported when a scorer is asked for, and not for the rest."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .. import plugin  # noqa: F401 (imports fairseq first)
    from . import scorer

    return getattr(scorer, name)
