"""The hints that come with the package, as a user's type checker sees them."""

import os
import re
import subprocess
import sys

import pytest

from tests.paths import DOCS, ROOT

# assert_type is exact: Any is no Tensor. Under --strict an "ignore" that hides no error
# is one, so that each line with it must be refused.
PROGRAM = """
from typing import Any, Iterator
from typing_extensions import assert_type

import torch
from torch import Tensor

from fairseq_transnormer import inference, modules, ops
from fairseq_transnormer.checkpoints.load import TrainedModel, load
from fairseq_transnormer.modules.encoder_classifier import EncoderClassifier
from fairseq_transnormer.ops.states import State


def attend(x: Tensor, asked: bool) -> None:
    y, sums = ops.linear_attention(x, x, x, causal=True, return_state=asked)
    assert_type(y, Tensor)
    assert_type(sums, ops.LinearAttentionState | None)
    y, block = ops.block_attention(
        x, x, x, block_size=2, causal=True, return_state=True
    )
    assert_type(y, Tensor)
    assert_type(block, ops.BlockAttentionState | None)
    y, seen = ops.softmax_attention(x, x, x, causal=True, return_state=True)
    assert_type(y, Tensor)
    assert_type(seen, ops.KeyValueState | None)
    assert sums and block and seen
    assert_type(sums.key_sum, Tensor | None)
    assert_type(ops.reorder_state(block, x), ops.BlockAttentionState)
    assert_type(ops.lrpe(x, x, x, x, x), tuple[Tensor, Tensor])
    assert_type(ops.rms_norm(x), Tensor)
    ops.linear_attention(x, x, x)  # type: ignore[call-arg]
    ops.reorder_state((x, x), x)  # type: ignore[type-var]
    ops.softmax_attention(
        x, x, x, causal=True, initial_state=sums  # type: ignore[arg-type]
    )


def build(tokens: Tensor, targets: Tensor) -> None:
    config = modules.LanguageModelT2Config(embed_dim=32, num_heads=2, block_size=8)
    config.dropout = "none"  # type: ignore[assignment]
    modules.LanguageModelConfig(embed_dims=32)  # type: ignore[call-arg]
    model = modules.CausalLanguageModel(config, 20)
    assert_type(model(tokens), Tensor)
    logits, states = model(tokens, return_states=True)
    assert_type(states, tuple[State, ...])
    assert_type(model(tokens, targets=targets), tuple[Tensor, Tensor])
    model("text")  # type: ignore[call-overload]
    model(tokens, targets=targets, return_states=True)  # type: ignore[call-overload]
    encoder = modules.MaskedLanguageModel(modules.EncoderT2Config(), 20)
    assert_type(encoder(tokens), Tensor)
    assert_type(encoder(tokens, targets=targets), tuple[Tensor, Tensor])
    classifier = modules.SequenceClassifier(modules.ClassifierT1Config(), 20, 2)
    assert_type(classifier((tokens,), (targets,)), Tensor)
    attention = modules.NormAttention(config, causal=True)
    modules.DiagAttention(config, block_size=8, causal=True)  # type: ignore[call-arg]
    assert_type(attention(logits), tuple[Tensor, State | None])


def read(tokens: Tensor) -> None:
    trained = load("folder")
    assert_type(trained, TrainedModel)
    assert_type(
        trained.model,
        modules.CausalLanguageModel | modules.MaskedLanguageModel | EncoderClassifier,
    )
    assert_type(trained.model(tokens), Tensor)
    assert_type(trained.words.encode("a"), list[int])
    load(1)  # type: ignore[arg-type]


def write() -> Iterator[str]:
    generator = inference.TextGenerator.from_checkpoint("checkpoint.pt")
    text = generator.generate("The river", beam=2)
    assert_type(text, inference.GeneratedText)
    assert_type(generator.generate(["a", "b"]), list[inference.GeneratedText])
    assert_type(generator.stream("a", seed=1), Iterator[str])
    generator.generate(1)  # type: ignore[call-overload]
    return generator.stream("a")
"""


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """mypy(program): what mypy --strict says of a user's program.

    The package stands where others do that are installed: py.typed makes its hints
    count, and what is wrong inside of it is not shown.
    """
    folder = tmp_path_factory.mktemp("user")

    def check(program: str) -> str:
        (folder / "program.py").write_text(program)
        command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty"]
        done = subprocess.run(
            [*command, "--cache-dir", "cache", "program.py"],
            **{"cwd": folder, "capture_output": True, "text": True},
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        assert not done.stderr
        return done.stdout

    return check


@pytest.mark.slow
def test_a_program_has_the_types_that_it_expects(mypy):
    assert mypy(PROGRAM).startswith("Success")


@pytest.mark.slow
def test_the_attention_of_the_documentation_has_hints(mypy):
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("## Adding an attention")[2]
    example = re.search(r"```python\n(.*?)```", section, re.S)[1]
    example = example.replace("from ...", "from fairseq_transnormer.")
    example = example.replace("from ..", "from fairseq_transnormer.modules.")
    assert mypy(example).startswith("Success")
