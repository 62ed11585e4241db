"""TransNormer for fairseq: importing the package registers it where fairseq is.

Without fairseq the ops and modules are there all the same.
"""

import importlib.util

from . import missing_packages

__version__ = "0.1.0"

missing_packages.explain_to_users()

if importlib.util.find_spec("fairseq") is not None:
    from . import models as models  # isort: skip (applies the work-arounds first)
    from . import criterions as criterions
    from . import optimizers as optimizers
    from . import tasks as tasks
