"""Check that a pre-trained checkpoint fits the data and model of a fine-tuning."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..data.labelled_texts import DICTIONARY, SentenceData
from ..data.subword_files import (
    dictionary_sha256,
    dictionary_symbols,
    find_subword_files,
)
from ..modules.config import EncoderConfig
from ..modules.options import TRAINING_ONLY
from .files import architecture, embedding_rows
from .identity import KEY, check_units, said_by, saved_units
from .safe_loading import read_checkpoint

# fields that a fine-tuning may change: they change no weight's shape or meaning
FREE_FIELDS = {x.name for x in fields(EncoderConfig) if x.metadata[TRAINING_ONLY]}
FREE_FIELDS |= {"pooler_dropout", "pooler_activation_fn", "pooling", "peak_tflops"}
FREE_FIELDS |= {"load_checkpoint_heads", "gradient_statistics"}
PRETRAINING_TASKS = ("masked_lm", "sentence_prediction")


@dataclass(frozen=True)
class PretrainedCheckpoint:
    """The settings of a checkpoint of ``masked_lm`` training.

    Attributes:
        path: of the file.
        model: its configuration.
        task: of its training.
        vocabulary: rows of its embedding.
        data: the folder of its training data, as named at the training.
        dictionary: SHA-256 of that folder's dictionary, if the checkpoint has it.
        units: SHA-256 of its subword files, by name, if the checkpoint has them.
    """

    path: Path
    model: dict[str, Any]
    task: str
    vocabulary: int
    data: str
    dictionary: str | None = None
    units: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path | str) -> PretrainedCheckpoint:
        """Read a checkpoint's configuration; the weights stay on the disk.

        Raises:
            ValueError: it is missing or damaged, or not a bidirectional model.
        """
        path = Path(path)
        state = read_checkpoint(path, mmap=True)
        cfg = state.get("cfg") or {}
        own, task = cfg.get("model"), cfg.get("task")
        is_theirs = isinstance(own, Namespace)  # configured by argparse: fairseq's
        own = vars(own) if is_theirs else own
        if not (isinstance(own, Mapping) and isinstance(task, Mapping)):
            raise ValueError(f"{path}: not a checkpoint of fairseq-train")
        model, task_name = dict(own), task.get("_name")
        if is_theirs or task_name not in PRETRAINING_TASKS:
            raise ValueError(
                f"{path}: a checkpoint of {architecture(model)} for the task "
                f"{task_name}; allowed: bidirectional models of this package, of the "
                "task masked_lm"
            )
        # values for checkpoints that are older than a field
        model.setdefault("pooling", "first")
        rows = embedding_rows(state["model"])
        if rows is None:
            raise ValueError(f"{path}: no embed_tokens.weight in it")
        said, data = said_by(state), str(task.get("data") or "")
        units = saved_units(said)
        return cls(path, model, task_name, rows, data, said.get(KEY), units)

    def check_data(self, data: SentenceData) -> None:
        """Raise ValueError unless the model can read the data."""
        if self.vocabulary != data.vocabulary:
            raise ValueError(
                f"{data.folder / DICTIONARY}: {data.vocabulary} entries with the "
                f"special ones; allowed for {self.path}: {self.vocabulary}, the "
                "dictionary that it was trained with"
            )
        known = self.dictionary or self._dictionary_of_its_data()
        if known not in (None, data.dictionary_sha256):
            raise ValueError(
                f"{data.folder / DICTIONARY}: its symbols have the SHA-256 "
                f"{data.dictionary_sha256}; allowed for {self.path}: "
                f"{known}, the dictionary that it was trained with"
            )
        files = find_subword_files([data.folder])
        check_units(self.units, files, data, data.folder, self.path)
        longest = self.model.get("max_positions")
        if longest and data.max_positions > longest:
            raise ValueError(
                f"{data.folder}: texts of up to {data.max_positions} tokens "
                f"(max_positions); allowed for {self.path}: up to {longest}"
            )

    def _dictionary_of_its_data(self) -> str | None:
        """For checkpoints of other programs, which name their data only."""
        own = Path(self.data.split(":")[0])
        for folder in (own, (own / DICTIONARY).parent) if self.data else ():
            if (folder / "dict.txt").is_file():
                return dictionary_sha256(dictionary_symbols(folder))
        return None

    def check_model(self, model: dict[str, Any]) -> None:
        """Raise ValueError if weights of this checkpoint would have another meaning.

        Args:
            model: the configuration of the model to fine-tune.
        """
        found = [
            f"model.{key}={value!r}, here {model[key]!r}"
            for key, value in self.model.items()
            if key in model and key not in FREE_FIELDS and model[key] != value
        ]
        if found:
            raise ValueError(
                f"{self.path} is of another architecture: it has {'; '.join(found)}"
            )
