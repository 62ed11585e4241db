"""Importing this changes fairseq (compatibility.py) and registers everything in it."""

from . import compatibility

compatibility.apply()
compatibility.warn_of_fairseqs_loop()

from . import criterions, models, optimizers, tasks  # noqa: E402, F401
