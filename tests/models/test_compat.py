"""Work-arounds of compat.py that no other test would miss."""

import subprocess
import sys

PROGRAM = """
import logging
import fairseq_transnormer
root = logging.getLogger()
assert root.level == logging.WARNING, root.level
assert not root.handlers, root.handlers
"""


def test_importing_the_package_leaves_logging_alone():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert not done.stdout and "INFO" not in done.stderr
