"""Work-arounds of compat.py that no other test would miss."""

import copy
import subprocess
import sys

from hydra.core.config_store import ConfigStore

from fairseq_transnormer.reproduce.configurations import compose
from tests.paths import CONFIGS

PROGRAM = """
import logging
import sys
import fairseq_transnormer
root = logging.getLogger()
assert root.level == logging.WARNING, root.level
assert not root.handlers, root.handlers
assert "torch._dynamo" not in sys.modules
"""


def test_importing_the_package_leaves_logging_alone():
    """And torch's compiler to those who compile: a second of every process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert not done.stdout and "INFO" not in done.stderr


def test_composing_copies_no_more_than_what_it_reads(monkeypatch):
    """And changes nothing that the next one reads."""
    copied = []

    def note(store, memo):
        copied.append(store)
        return store

    monkeypatch.setattr(ConfigStore, "__deepcopy__", note, raising=False)
    copy.deepcopy(ConfigStore.instance())
    assert len(copied) == 1
    first = compose(CONFIGS, "blm_t1", {"model.block_size": 17})
    again = compose(CONFIGS, "blm_t1", {"model.block_size": 19})
    assert len(copied) == 1
    assert (first["model"].pop("block_size"), again["model"].pop("block_size")) == (
        17, 19,
    )  # fmt: skip
    assert again == first
