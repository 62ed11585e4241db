"""Checkpoints of tiny models as fairseq-train writes them, with random weights."""

from pathlib import Path

import torch
from fairseq import checkpoint_utils, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.options import get_training_parser, parse_args_and_arch
from omegaconf import OmegaConf
from torch import nn

import fairseq_transnormer  # noqa: F401 (registers the models)
from tests.binary_data import write_binary_data
from tests.classification.problems import dictionary, write_problem
from tests.paths import USER_DIR

CAUSAL = ("transnormer_t1_tiny", "transnormer_t2_tiny")
ENCODERS = ("roberta_transnormer_t1_tiny", "roberta_transnormer_t2_tiny")
# name -> labels, and what the head sees
HEADS = {"classifier": (("no", "yes", "maybe"), "first"), "regression": ((), "mean")}
# symbols of the dictionary, special ones counted
WORDS = 44


def write(folder: Path, name: str) -> tuple[Path, nn.Module]:
    """A checkpoint in ``folder``, its data in ``folder/data``, and its model.

    name: of a tiny architecture, or of ``HEADS``.
    """
    folder.mkdir(parents=True)
    data = folder / "data"
    more = ["--arch", name]
    if name in HEADS:
        labels, pooling = HEADS[name]
        write_problem(data, labels=labels, pairs=not labels)
        more = ["--arch", "roberta_transnormer_t2_tiny", "--pooling", pooling]
        more += ["--task", "sentence_prediction", "--init-token", "0"]
        more += ["--num-classes", str(len(labels) or 1), "--separator-token", "2"]
        more += ["--criterion", "sentence_prediction_metrics"]
        more += [] if labels else ["--regression-target"]
    else:
        lines = [f"w{i} w{i + 1} w{2 * i}" for i in range(20)]
        write_binary_data(data, dictionary(), {"train": lines, "valid": lines})
        task = "masked_lm" if name in ENCODERS else "language_modeling"
        more += ["--task", task]
    return save(folder / "checkpoint.pt", data, *more)


def save(path: Path, data: Path, *arguments: str) -> tuple[Path, nn.Module]:
    """A checkpoint of a model that fairseq builds with these arguments."""
    parser = get_training_parser()
    given = [str(data), "--user-dir", str(USER_DIR), "--optimizer", "adam", *arguments]
    cfg = convert_namespace_to_omegaconf(parse_args_and_arch(parser, given))
    model = tasks.setup_task(cfg.task).build_model(cfg.model).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.dim() < 2:
                parameter += 0.1 * torch.randn_like(parameter)
    state = {
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "args": None,
        "model": model.state_dict(),
        "optimizer_history": [
            {"optimizer_name": "x", "lr_scheduler_state": {}, "num_updates": 1}
        ],
        "extra_state": {"train_iterator": {"epoch": 1}, "val_loss": None},
    }
    checkpoint_utils.torch_persistent_save(state, str(path))
    return path, model


def rows(*lengths: int) -> list[torch.Tensor]:
    """Rows of drawn words."""
    return [torch.randint(4, WORDS, (length,)) for length in lengths]


def padded(given: list[torch.Tensor], side: str) -> tuple[torch.Tensor, torch.Tensor]:
    """input_ids and attention_mask (B, N) of rows, pads on the left or on the right."""
    most = max(map(len, given))
    tokens, mask = torch.ones(2, len(given), most, dtype=torch.int64).unbind()
    mask = torch.zeros_like(mask)
    for i, row in enumerate(given):
        start = most - len(row) if side == "left" else 0
        tokens[i, start : start + len(row)] = row
        mask[i, start : start + len(row)] = 1
    return tokens, mask
