"""Data whose batches no number of workers divides, and trainings on them, run once."""

import random
from pathlib import Path

import pytest

from tests.binary_data import numbered_words, write_labelled_data
from tests.tiny_data import write_tiny_data

from .trainings import Training

LINES, VALID_LINES = 115, 11  # of 21 tokens
SENTENCES, VALID_SENTENCES = 75, 7
# blocks of 32 tokens; whole lines in blocks of 48; sentences
SEQUENCES_OF_TRAIN = {"alm": 76, "blm": 58, "fine_tuning": 75}
SEQUENCES_OF_VALID = {"alm": 8, "blm": 6, "fine_tuning": 7}
# of 4 sequences; of the validation 2
BATCHES = {"alm": 19, "blm": 15, "fine_tuning": 19}


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> Path:
    return write_tiny_data(tmp_path_factory.mktemp("text"), LINES)


@pytest.fixture(scope="session")
def labelled(tmp_path_factory) -> Path:
    """Sentences of two classes, as sentence_prediction reads them."""
    chance = random.Random(0)
    sentences: dict[str, list[str]] = {}
    classes: dict[str, list[str]] = {}
    for split, rows in (("train", SENTENCES), ("valid", VALID_SENTENCES)):
        classes[split] = [str(chance.randrange(2)) for _ in range(rows)]
        sentences[split] = [
            " ".join(f"w{chance.randrange(40)}" for _ in range(9 + i % 5))
            for i in range(rows)
        ]
    folder = tmp_path_factory.mktemp("labelled")
    return write_labelled_data(folder, numbered_words(40), sentences, "01", classes)


@pytest.fixture(scope="session")
def trained(text, labelled, tmp_path_factory):
    """trained(task, workers, **options): a training of 12 updates, once only."""
    runs: dict[tuple, Training] = {}
    no_dropout = {"attention-dropout": 0}
    kinds = {
        "alm": (text, "transnormer_t2_tiny", {"tokens-per-sample": 32}),
        "blm": (
            text,
            "roberta_transnormer_t1_tiny",
            no_dropout
            | {"tokens-per-sample": 48, "sample-break-mode": "complete"}
            | {"mask-prob": 0.3},
        ),
        "fine_tuning": (
            labelled,
            "roberta_transnormer_t2_tiny",
            no_dropout
            | {"task": "sentence_prediction"}
            | {"criterion": "sentence_prediction_metrics"}
            | {"num-classes": 2, "init-token": 0, "separator-token": 2}
            | {"max-positions": 64, "tokens-per-sample": None},
        ),
    }

    def train(task: str, workers: int, **options) -> Training:
        key = (task, workers, *sorted(options.items()))
        if key not in runs:
            data, arch, own = kinds[task]
            given = own | {
                name.replace("_", "-"): each for name, each in options.items()
            }
            save_dir = tmp_path_factory.mktemp(f"{task}{workers}") / "checkpoints"
            runs[key] = Training(data, save_dir, workers, given, arch=arch)
            assert runs[key].run() == [0] * workers, runs[key].text()
        return runs[key]

    return train
