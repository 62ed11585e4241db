"""TransNormer: ops and modules in PyTorch, and a plugin of fairseq.

Where fairseq has been imported, as its ``--user-dir`` has done, importing this package
registers the models, tasks, criterions and optimizers (plugin.py). Elsewhere nothing of
fairseq is imported.
"""

import sys

from . import missing_packages

__version__ = "0.1.0"

missing_packages.explain_to_users()

if sys.modules.get("fairseq") is not None:
    from . import plugin as plugin
