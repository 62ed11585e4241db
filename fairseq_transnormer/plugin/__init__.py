"""Importing this registers all of this package with fairseq, which is changed first.

Whoever imports both this package and fairseq has imported it: see registration.py.
"""

from . import models  # isort: skip (changes fairseq first)
from . import criterions, optimizers, tasks

__all__ = ["criterions", "models", "optimizers", "tasks"]
