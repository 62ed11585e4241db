"""``python -m fairseq_transnormer.generation``."""

import sys

from .command_line import main

sys.exit(main())
