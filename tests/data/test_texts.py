"""Texts of the command line, whatever the locale."""

import os
import subprocess
import sys

import pytest

from tests.paths import ROOT

SHOWS = """
import sys
from fairseq_transnormer.data.texts import argument_text
print(ascii(argument_text(sys.argv[1])))
"""


@pytest.mark.parametrize("utf8_mode", ["0", "1"])
@pytest.mark.parametrize("given", ["né € 语".encode(), b"n\xe9"])
def test_bytes_of_a_prompt_are_utf_8(given, utf8_mode):
    """Those that are not are kept, for ``check_text`` to refuse."""
    locale = {"LC_ALL": "C", "PYTHONUTF8": utf8_mode, "PYTHONPATH": str(ROOT)}
    shown = subprocess.run(
        [sys.executable, "-c", SHOWS, given],
        **{"env": os.environ | locale, "check": True, "stdout": subprocess.PIPE},
    )
    text = given.decode("utf-8", "surrogateescape")
    assert shown.stdout.decode().strip() == ascii(text)
