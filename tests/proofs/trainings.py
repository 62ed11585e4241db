"""Losses and gradient norms of short trainings through fairseq-train."""

from __future__ import annotations

import random
from pathlib import Path

import torch

from tests.binary_data import dictionary_of, write_labelled_data
from tests.data_prep.commands import synthetic_lra as make_synthetic
from tests.forked_trainings import Training, logged
from tests.tiny_data import write_tiny_data

UPDATES = 24
LANGUAGE_MODELS = {
    "t1": "transnormer_t1_tiny",
    "t2": "transnormer_t2_tiny",
    "1+elu": "linear_transformer_tiny",
    "vanilla": "vanilla_transformer_tiny",
    "blm": "roberta_transnormer_t2_tiny",
}


def language_model(arch: str, data: Path, folder: Path) -> Training:
    """A training on ``data``."""
    options = {"max-update": UPDATES, "save-interval": 100, "dropout": 0.1}
    return Training(data, folder, options=options, arch=arch)


def classifier(folder: Path) -> Training:
    """The Long-Range Arena's task, on its small texts."""
    data = folder / "data"
    small = ["--counts", "128", "16", "16", "--longest", "60"]
    assert make_synthetic(["--dest", str(data), *small]) == 0
    options = {
        "task": "long_range_arena", "arena": "text", "max-positions": 64,
        "criterion": "sequence_classification", "tokens-per-sample": None,
        "max-update": UPDATES, "save-interval": 100,
    }  # fmt: skip
    return Training(
        data / "text", folder / "save", options=options, arch="lra_transnormer_t2_tiny"
    )


def fine_tuning(pre_trained: Path, folder: Path) -> Training:
    """Of the masked model of ``curves``, on two classes that differ in their words."""
    chance = random.Random(0)
    texts, labels = {}, {}
    for split, count in (("train", 64), ("valid", 16)):
        labels[split] = [str(chance.randrange(2)) for _ in range(count)]
        texts[split] = [
            " ".join(f"word{30 * int(x) + chance.randrange(30)}" for _ in range(9))
            for x in labels[split]
        ]
    words = dictionary_of(f"word{i}" for i in range(60))
    data = write_labelled_data(folder / "data", words, texts, "01", labels)
    options = {
        "task": "sentence_prediction", "criterion": "sentence_prediction",
        "num-classes": 2, "init-token": 0, "separator-token": 2, "max-positions": 512,
        "tokens-per-sample": None, "max-update": UPDATES, "save-interval": 100,
        "restore-file": pre_trained / "checkpoint_last.pt",
    }  # fmt: skip
    reset = ("optimizer", "lr-scheduler", "dataloader", "meters")
    return Training(
        data,
        folder / "save",
        options=options,
        flags=tuple(f"--reset-{each}" for each in reset),
        arch=LANGUAGE_MODELS["blm"],
    )


def curve(training: Training) -> dict[str, list[float]]:
    """Every fourth loss and gradient norm, as logged: three digits after the point."""
    assert training.run() == [0], training.text()
    records = logged(training.text(), "train_inner")
    assert int(records[-1]["num_updates"]) == UPDATES
    return {
        name: [float(record[name]) for record in records[3::4]]
        for name in ("loss", "gnorm")
    }


def curves(folder: Path) -> dict[str, dict[str, list[float]]]:
    """Of all of them; ``folder`` keeps what was trained."""
    data = write_tiny_data(folder / "data")
    found = {
        name: curve(language_model(arch, data, folder / name))
        for name, arch in LANGUAGE_MODELS.items()
    }
    found["lra"] = curve(classifier(folder / "lra"))
    found["fine-tuning"] = curve(fine_tuning(folder / "blm", folder / "fine-tuning"))
    return found


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Of a run's last checkpoint, which this process wrote."""
    return torch.load(folder / "checkpoint_last.pt", weights_only=False)["model"]
