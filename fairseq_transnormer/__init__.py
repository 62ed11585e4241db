"""TransNormer: ops and modules in PyTorch, and a plugin of fairseq.

``import fairseq_transnormer.plugin`` registers the models, tasks, criterions and
optimizers with fairseq; fairseq's ``--user-dir fairseq_transnormer`` does the same.
Without either, nothing of fairseq is imported.
"""

import importlib
import sys

__version__ = "0.1.0"

if sys.modules.get("fairseq") is not None:  # it imports this package: --user-dir
    importlib.import_module(f"{__name__}.plugin")
