"""``--help`` of fairseq's commands shows what the words before it bring."""

import dataclasses
import re
from enum import Enum

import pytest
from fairseq import options
from fairseq.models import MODEL_DATACLASS_REGISTRY

import fairseq_transnormer  # noqa: F401 (as fairseq's commands import --user-dir)
from tests.paths import USER_DIR


def help_of(arch, capsys, *words):
    return shown_by(options.get_training_parser(), capsys, "--arch", arch, *words)


def shown_by(parser, capsys, *words):
    chosen = ["--user-dir", str(USER_DIR), *words, "--help"]
    with pytest.raises(SystemExit) as ended:
        options.parse_args_and_arch(parser, chosen)
    assert ended.value.code == 0
    return re.sub(r"\s+", " ", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arch", "task"),
    [
        ("transnormer_t2", "language_modeling"),
        ("roberta_transnormer_t1", "masked_lm"),
        ("lra_transnormer_t2", "long_range_arena"),
    ],
)
def test_every_field_of_a_model_is_shown(arch, task, capsys):
    shown = help_of(arch, capsys, "--task", task)
    # what fairseq interpolates from other groups has their defaults
    for each in dataclasses.fields(MODEL_DATACLASS_REGISTRY[arch]):
        option = f"--{each.name.replace('_', '-')}"
        entry = re.search(rf" {option} (?!\[)(.*?)\(default: (.*?)\)", shown)
        if each.name.startswith("_") or each.metadata.get("help") is None:
            continue
        assert entry, option
        default = each.default
        if isinstance(default, Enum):
            assert all(member.value in shown for member in type(default))
            default = default.value
        if not str(default).startswith("${"):
            assert str(default) in entry[0], option
        if each.type in (int, "int"):
            assert f"{option} INT" in shown


def test_criterion_and_optimizer_are_shown(capsys):
    words = "--criterion chunked_cross_entropy --optimizer fused_adam".split()
    shown = help_of("transnormer_t1", capsys, "--task", "language_modeling", *words)
    for option in ("--sentence-avg", "--adam-betas", "--weight-decay FLOAT"):
        assert option in shown


@pytest.mark.parametrize("command", ["training", "validation", "generation"])
def test_help_of_a_bare_command(command, capsys):
    """Where neither a model nor a task is chosen yet."""
    parser = getattr(options, f"get_{command}_parser")()
    shown = shown_by(parser, capsys)
    for option in ("--task ", "--criterion ", "--batch-size INT"):
        assert option in shown
