"""Weights and settings that make no model: one line, and no figure."""

import copy

import pytest
import torch

from tests.commands import command
from tests.messages import command_refuses

classify, export = command("classify"), command("export")
generate, score = command("generate"), command("score")

COMMANDS = {
    "transnormer_t2_tiny": (
        lambda path: (score, ["--path", path, "--text", "w1 w2"]),
        lambda path: (generate, ["--path", path, "--prompt", "w1 w2"]),
        lambda path: (export, [path, "--dest", path.parent / "out"]),
    ),
    "classifier": (
        lambda path: (classify, ["--path", path, "--text", "w1 w2"]),
        lambda path: (export, [path, "--dest", path.parent / "out"]),
    ),
}
WEIGHTS = {
    "NaN": lambda x: torch.full_like(x, torch.nan),
    "infinite": lambda x: torch.full_like(x, torch.inf),
    "int64": lambda x: (100 * x).long(),
    "complex": lambda x: x.to(torch.complex64),
    "sparse": lambda x: x.to_sparse(),
    "another shape": lambda x: x[:-1].clone(),
    "no tensor": lambda x: x.tolist(),
}
SETTINGS = [
    *(("model", "num_heads", value) for value in ("abc", 3, [1], 10**12)),
    *(("model", "norm_type", value) for value in (-1, None, "abc")),
    *(("model", "dropout", value) for value in (-1.0, "abc")),
]


@pytest.fixture(scope="module", params=COMMANDS)
def good(request, zoo, tmp_path_factory):
    state = torch.load(zoo.untrained[request.param].checkpoint, weights_only=False)
    return tmp_path_factory.mktemp("bad"), state, COMMANDS[request.param]


def refused(good, change, capsys, *parts):
    folder, state, commands = good
    state, bad = copy.deepcopy(state), folder / "bad.pt"
    change(state)
    torch.save(state, bad)
    for each in commands:
        command_refuses(*each(bad), capsys, *parts)
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("weight", "kind"),
    [
        *(("embed_tokens.weight", kind) for kind in ("NaN", "another shape", "int64")),
        *(("q_proj.weight", kind) for kind in ("complex", "another shape", "sparse")),
        *(("q_proj.bias", kind) for kind in ("infinite", "no tensor")),
    ],
)
def test_weights(weight, kind, good, capsys):
    name = next(each for each in good[1]["model"] if each.endswith(weight))

    def change(state):
        state["model"][name] = WEIGHTS[kind](state["model"][name])

    refused(good, change, capsys)


@pytest.mark.parametrize(("section", "name", "value"), SETTINGS)
def test_settings(section, name, value, good, capsys):
    refused(good, lambda state: state["cfg"][section].update({name: value}), capsys)
