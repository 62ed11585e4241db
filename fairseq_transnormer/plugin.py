"""Importing this registers all of this package with fairseq, which is changed first.

``--user-dir fairseq_transnormer`` and ``common.user_dir`` import it by way of the
package; programs of their own that load models through fairseq import it themselves.
"""

from . import models  # isort: skip (changes fairseq first)
from . import criterions, optimizers, tasks

__all__ = ["criterions", "models", "optimizers", "tasks"]
