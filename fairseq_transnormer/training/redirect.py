"""``fairseq-train --user-dir`` trains with this package's loop.

fairseq's command imports the user's package while it parses its options, and looks
``main`` and ``call_main`` up when it calls them (fairseq_cli/train.py, ``cli_main``).
"""

import functools
import logging
import sys
from pathlib import Path

from fairseq.distributed import utils as distributed_utils

from .main import main
from .workers import call_main

logger = logging.getLogger(__name__)


def take_over() -> None:
    """Put ``main`` in the place of fairseq's; asked again, nothing changes."""
    for name in ("fairseq_cli.train", "__main__"):  # python -m fairseq_cli.train
        program = sys.modules.get(name)
        if Path(getattr(program, "__file__", None) or "").match("fairseq_cli/train.py"):
            program.main = main
    fairseqs = distributed_utils.call_main
    if not isinstance(fairseqs, functools.partial):
        distributed_utils.call_main = functools.partial(_call_main, fairseqs)
    if "fairseq_cli.hydra_train" in sys.modules:
        logger.warning(
            "fairseq-hydra-train trains with fairseq's own loop: no resumption in "
            "mid-epoch for other numbers of workers, no locked folder, no checkpoint "
            "on SIGTERM. python -m fairseq_transnormer train takes the same words and "
            "has all of it"
        )


def _call_main(fairseqs, cfg, program, **arguments):
    if program is main:
        return call_main(cfg, program)
    return fairseqs(cfg, program, **arguments)
