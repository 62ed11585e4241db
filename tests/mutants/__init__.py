"""Changes of the code that the tests must notice; see docs/contributing.md."""

from .data import DATA
from .mathematics import MATHEMATICS
from .models import MODELS
from .mutant import Mutant
from .training import TRAINING

MUTANTS: tuple[Mutant, ...] = (*MATHEMATICS, *MODELS, *DATA, *TRAINING)

__all__ = ["MUTANTS", "Mutant"]
