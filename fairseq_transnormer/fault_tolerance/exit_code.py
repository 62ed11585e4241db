"""How a training that was asked to stop says so."""

import os

# "temporary failure, try again" of sysexits.h, 75: the same command goes on
MORE_TO_DO = os.EX_TEMPFAIL
