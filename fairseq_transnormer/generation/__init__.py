"""Text generation: prompts in one pass, decoding with a constant state.

    generator = TextGenerator.from_checkpoint("checkpoints/checkpoint_best.pt")
    for text in generator.generate(["The river", "In 1902"], top_p=0.9, seed=1):
        print(text.text)

On the command line: ``python -m fairseq_transnormer.generation --help``.
"""

from .errors import GenerationError
from .generator import GeneratedText, TextGenerator
from .settings import GenerationSettings

__all__ = [
    "GeneratedText",
    "GenerationError",
    "GenerationSettings",
    "TextGenerator",
]
