"""``python -m fairseq_transnormer.export``."""

import logging
import sys

from .command_line import main

logging.getLogger("fairseq").setLevel(logging.WARNING)
sys.exit(main())
