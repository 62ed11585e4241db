"""A configuration as a training: composed, laid out over workers, started.

Importing a file of it imports no fairseq, so that --help answers in a moment.
"""

import logging
import os
import sys


def set_up_logging(*, anew: bool = False) -> None:
    """As fairseq_cli/train.py does, which has to be before fairseq is imported.

    Args:
        anew: whether handlers that are there go, as in a process that has imported it.
    """
    logging.basicConfig(
        format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        level=os.environ.get("LOGLEVEL", "INFO").upper(),
        stream=sys.stdout,
        force=anew,
    )
