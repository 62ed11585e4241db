"""TransNormer: ops and modules in PyTorch, and a plugin of fairseq.

Wherever fairseq is imported besides, as by its ``--user-dir``, the models, tasks,
criterions and optimizers are registered with it (plugin.py). Elsewhere nothing of
fairseq is imported.
"""

from . import missing_packages, registration

__version__ = "0.1.0"

missing_packages.explain_to_users()
registration.register_with_fairseq()
