"""Checkpoints as fairseq-train writes them, and changes of what was exported."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import Enum
from pathlib import Path

import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY

from tests.models.building import build


def write_checkpoint(path: Path, architecture: str, data: str = "", **changes):
    """Save a model, its small tensors not as they start; returns it.

    data: folder of the data, in the checkpoint's configuration.
    """
    model = build(architecture, **changes)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.dim() < 2:
                parameter += 0.1 * torch.randn_like(parameter)
    values = asdict(MODEL_DATACLASS_REGISTRY[architecture](**changes))
    for name, value in values.items():
        if isinstance(value, Enum):
            values[name] = value.value
    cfg = {
        "model": values | {"_name": architecture},
        "task": {"data": data, "add_bos_token": False},
    }
    state = {"args": None, "cfg": cfg, "model": model.state_dict()}
    torch.save(state, path)
    return model


@contextmanager
def changed_section(folder: Path) -> Iterator[dict]:
    """What config.json says of an export, to be changed and written again."""
    path = folder / "config.json"
    content = json.loads(path.read_text())
    yield content["fairseq_transnormer"]
    path.write_text(json.dumps(content))
