"""Importing this changes fairseq (compatibility.py) and registers all with it."""

from . import compatibility

compatibility.apply()

from . import criterions, models, optimizers, tasks  # noqa: E402, F401
