"""``python -m fairseq_transnormer.classification``."""

import logging
import os
import sys

from .command_line import main

logging.getLogger("fairseq").setLevel(logging.WARNING)
try:
    status = main()
    sys.stdout.flush()
except BrokenPipeError:
    # the reader, such as head, has seen enough; what is left to flush goes nowhere
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    status = 1
sys.exit(status)
