"""Changes of compatibility.py that no other test would miss; registration."""

import copy
import subprocess
import sys

import pytest
from fairseq import options
from hydra.core.config_store import ConfigStore

from fairseq_transnormer.training.config import compose
from tests.forked_trainings import training_arguments
from tests.kept_configurations import kept
from tests.messages import assert_names
from tests.paths import CONFIGS
from tests.resolved_configs import command_line_config

PROGRAM = """
import logging
import sys
import fairseq_transnormer.data
import fairseq_transnormer.modules
import fairseq_transnormer.ops
import fairseq_transnormer.training.exit_code
assert "fairseq" not in sys.modules
import fairseq_transnormer.plugin
from fairseq import checkpoint_utils
from fairseq.models import ARCH_MODEL_REGISTRY
assert "transnormer_t2" in ARCH_MODEL_REGISTRY
assert checkpoint_utils.load_checkpoint_to_cpu.__wrapped__
root = logging.getLogger()
assert root.level == logging.WARNING, root.level
assert not root.handlers, root.handlers
assert "torch._dynamo" not in sys.modules
"""


def test_the_plugin_alone_imports_fairseq():
    """It registers the models, changes fairseq, and leaves logging alone.

    And torch's compiler is left to those who compile: a second of every process.
    """
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
    first = compose(CONFIGS, "blm", {"model": "blm_t1", "model.block_size": 17})
    again = compose(CONFIGS, "blm", {"model": "blm_t1", "model.block_size": 19})
    assert len(copied) == 1
    assert (first["model"].pop("block_size"), again["model"].pop("block_size")) == (
        17, 19,
    )  # fmt: skip
    assert again == first


def test_a_kept_configuration_is_what_hydra_composes(tmp_path):
    """As most trainings of the tests begin: of the second line a few fields change."""
    lines = [
        training_arguments("transnormer_t2_tiny", tmp_path / name, **options)
        for name, options in (
            ("it's {a}, b=c", {"lr": "0.1,0.2", "update_freq": "2,3"}),
            ("plain", {"adam_betas": "(0.8, 0.9)", "bf16": True, "block_size": 4}),
            ("plain", {"dropout": 0.0, "sample_break_mode": "eos", "lr": 1}),
        )
    ]
    expected = [command_line_config([str(tmp_path), *line]) for line in lines]
    with kept():
        assert [command_line_config([str(tmp_path), *line]) for line in lines] == (
            expected
        )


@pytest.mark.parametrize("option", ["--num-workers", "--num-shards"])
def test_a_context_that_another_process_has_read_is_refused(capsys, option):
    """fairseq-eval-lm takes what the same process read before: another place's text."""
    given = ["data", "--path", "x.pt", "--context-window", "8", option]

    def parsed(words):
        return options.parse_args_and_arch(options.get_eval_lm_parser(), words)

    assert parsed([*given, "1"]).context_window == 8
    with pytest.raises(SystemExit):
        parsed([*given, "2"])
    assert_names(capsys.readouterr().err, "--context-window", "num_workers")
