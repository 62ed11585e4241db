"""These tests run the kernels in Triton's interpreter, on the CPU.

The interpreter has to be chosen before Triton is imported, so they run in a process of
their own: ``TRITON_INTERPRET=1 python -m pytest tests/ops/interpreter``, which
scripts/test.sh does.
"""

import os

from .poison import poisoned_memory  # noqa: F401

if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore_glob = ["test_*.py", "*/test_*.py"]
else:
    from .patching import patch_once_a_launch

    patch_once_a_launch()
