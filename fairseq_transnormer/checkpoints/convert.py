"""Convert a checkpoint of fairseq-train to a plain PyTorch model's parts.

fairseq is not needed. Dictionary, subword files and labels are searched in the folders
of the data, and compared with the checkpoint's record.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from torch import Tensor

from ..data.labelled_texts import SentenceData
from ..data.subword_files import (
    DICTIONARY,
    MASK,
    dictionary_folder,
    find_subword_files,
    named_units,
)
from ..modules.encoder_classifier import HeadConfig
from ..modules.systems import KINDS, SYSTEMS
from .added_fields import MARK
from .files import architecture, embedding_rows
from .identity import (
    KEY,
    LABELS_KEY,
    LENGTH_KEY,
    SCALE_KEY,
    check_dictionary,
    check_dictionary_file,
    check_labels,
    check_units,
    identity_of,
    said_by,
    saved_units,
)
from .manifest import (
    BIDIRECTIONAL,
    CAUSAL,
    CLASSIFIER,
    CONFIGS,
    PREFIX,
    Manifest,
)
from .safe_loading import CheckpointError, error_line, read_checkpoint
from .vocabulary import Vocabulary

# prefixes in fairseq's model: of the plain PyTorch model, and of heads
PREFIXES = {"decoder.model.": CAUSAL, "encoder.model.": BIDIRECTIONAL}
HEADS = "classification_heads."
FINE_TUNING = "sentence_prediction"
# folder of the first texts of a problem
TEXTS = "input0"
# a note
UNKNOWN_LABELS = "the labels are not known"


@dataclass
class Parts:
    """The parts of a trained model, from a checkpoint or an exported folder.

    Attributes:
        path: of the checkpoint or the folder.
        manifest: the model's description.
        tensors: by their names in an exported folder.
        files: dictionary and subword files, by their names in an exported folder.
        vocabulary: of these files; None without a dictionary.
        data: the folder of the training's data, as named at the training.
        notes: sentences on missing or dropped parts.
    """

    path: Path
    manifest: Manifest
    tensors: dict[str, Tensor]
    files: dict[str, Path]
    vocabulary: Vocabulary | None
    data: str = ""
    notes: list[str] = field(default_factory=list)


def read_parts(
    path: Path, data: str | Path | None, sentencepiece_model: str | Path | None
) -> Parts:
    """Read a checkpoint with its dictionary, subword files and labels.

    Args:
        path: the file.
        data: folder with dict.txt, or of a problem; by default that of the training, or
            else that of the checkpoint, if one of them exists.
        sentencepiece_model: by default the subword files in these folders.

    Raises:
        CheckpointError: it is not a checkpoint of this package's language models, or
            its dictionary, subword files or labels differ from those here.
    """
    state = read_checkpoint(path, mmap=True)
    cfg = state.get("cfg") or {}
    model, task = cfg.get("model"), cfg.get("task")
    if isinstance(model, Namespace):  # fairseq's models by argparse
        model = vars(model)
    if not (isinstance(model, Mapping) and isinstance(task, Mapping)):
        raise CheckpointError(f"{path}: not a checkpoint of fairseq-train")
    try:
        return _Reading(path, state, model, task, data, sentencepiece_model).parts()
    except CheckpointError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: {error_line(error)}") from error


@dataclass
class _Reading:
    path: Path
    state: Mapping[str, Any]
    model: Mapping[str, Any]
    task: Mapping[str, Any]
    data: str | Path | None
    sentencepiece_model: str | Path | None
    notes: list[str] = field(default_factory=list)

    def parts(self) -> Parts:
        kind = self._kind()
        tensors = self._tensors(kind)
        rows = embedding_rows(tensors)
        if rows is None:
            raise CheckpointError(f"{self.path}: no embed_tokens.weight in it")
        files, vocabulary = self._files(rows, kind != CAUSAL)
        manifest = self._manifest(kind, rows, vocabulary, tensors)
        # fairseq's lists of folders have colons
        data = str(self.task.get("data") or "").split(":")[0]
        return Parts(self.path, manifest, tensors, files, vocabulary, data, self.notes)

    @property
    def said(self) -> Mapping[str, Any]:
        return said_by(self.state)

    def _kind(self) -> str:
        weights = self.state["model"]
        for prefix, kind in PREFIXES.items():
            if f"{prefix}embed_tokens.weight" in weights and MARK in self.model:
                is_fine_tuned = self.task.get("_name") == FINE_TUNING
                return CLASSIFIER if is_fine_tuned else kind
        raise CheckpointError(
            f"{self.path}: a checkpoint of {architecture(self.model)!r}; allowed: this "
            f"package's language models, causal or masked, which have {MARK}; "
            "fairseq's own commands read others"
        )

    def _tensors(self, kind: str) -> dict[str, Tensor]:
        """The tensors of the model and of the head of its fine-tuning."""
        renamed = dict.fromkeys(PREFIXES, PREFIX)
        own = self.task.get("classification_head_name") if kind == CLASSIFIER else None
        if own is not None:
            renamed[f"{HEADS}{own}."] = "classifier."
        tensors, dropped = {}, set()
        for name, tensor in self.state["model"].items():
            for theirs, ours in renamed.items():
                if name.startswith(theirs):
                    name = ours + name.removeprefix(theirs)
                    break
            if name.startswith(HEADS):
                dropped.add(name.split(".")[1])
            else:
                tensors[name] = tensor
        self.notes += [
            f"the classification head {head!r} is dropped" for head in sorted(dropped)
        ]
        return tensors

    def _files(
        self, rows: int, has_mask: bool
    ) -> tuple[dict[str, Path], Vocabulary | None]:
        """Dictionary and subword files, if they exist."""
        trained_on = self.task.get("data")
        data, trained_on = _texts_of(self.data), str(_texts_of(trained_on or ""))
        try:
            folder = dictionary_folder(self.path, trained_on, data)
        except ValueError as error:
            if data is not None:
                raise CheckpointError(str(error)) from error
            self.notes.append(str(error))
            return {}, None
        # a problem has them in the parent of the folder of its texts
        of_problem = [folder.parent] if folder.name == TEXTS else []
        folders = [*of_problem, folder, self.path.parent]
        units = self._units(folders)
        vocabulary = Vocabulary.read(folder / DICTIONARY, units, rows, has_mask)
        try:
            check_dictionary(self.said, vocabulary, self.path)
            check_dictionary_file(folder / DICTIONARY)
            saved = saved_units(self.said)
            check_units(saved, units, vocabulary, folders[0], self.path)
        except CheckpointError as error:
            raise CheckpointError(f"{error} (--data; here: {folder})") from error
        if vocabulary.missing_units is not None:
            self.notes.append(
                f"no {vocabulary.missing_units} in {' or '.join(map(str, folders))}: "
                "the model reads tokens, but no text"
            )
        return {DICTIONARY: folder / DICTIONARY} | named_units(units), vocabulary

    def _units(self, folders: list[Path]) -> tuple[Path, ...]:
        if self.sentencepiece_model is None:
            return find_subword_files(folders)
        if not Path(self.sentencepiece_model).is_file():
            raise CheckpointError(
                f"{self.sentencepiece_model}: no such sentencepiece model"
            )
        return (Path(self.sentencepiece_model),)

    def _manifest(
        self,
        kind: str,
        rows: int,
        vocabulary: Vocabulary | None,
        tensors: Mapping[str, Tensor],
    ) -> Manifest:
        special = {"bos": 0, "pad": 1, "eos": 2, "unk": 3}
        if kind != CAUSAL:
            # without a dictionary: the number at which fairseq's tasks append it
            known = vocabulary.numbers if vocabulary else {MASK: rows - 1}
            if MASK in known:
                special["mask"] = known[MASK]
        begins = kind != CAUSAL or self.task.get("add_bos_token", False)
        more: dict[str, Any] = {"sequence_length": self.task.get("tokens_per_sample")}
        if kind == CLASSIFIER:
            more = self._of_classifier(tensors)
        symbols, units = self.said.get(KEY), saved_units(self.said) or None
        if vocabulary:
            symbols, units = identity_of(vocabulary), vocabulary.units_sha256()
        return Manifest(
            architecture=str(architecture(self.model)),
            kind=kind,
            vocab_size=rows,
            special_tokens=special,
            start_token=special["bos" if begins else "eos"],
            config=CONFIGS[kind](**self._config_values(kind)),
            dictionary_sha256=symbols,
            units_sha256=units,
            **more,
        )

    def _config_values(self, kind: str) -> dict[str, Any]:
        """The configuration; missing fields have the architecture's defaults."""
        values = next(
            (
                system.model_values(each)
                for system in SYSTEMS.values()
                for each in KINDS
                if system.architecture_of(each) == architecture(self.model)
            ),
            {},
        )
        names = {each.name for each in fields(CONFIGS[kind])}
        values |= {name: self.model[name] for name in names & self.model.keys()}
        # it may be loaded on another device
        return values | {"backend": "auto"}

    def _of_classifier(self, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Head, labels and further values for the manifest of a classifier."""
        name = self.task.get("classification_head_name")
        needed = [f"classifier.{part}.weight" for part in ("out_proj", "dense")]
        if not {*needed} <= tensors.keys():
            raise CheckpointError(f"{self.path}: no classification head {name!r} in it")
        outputs, inner_dim = (len(tensors[each]) for each in needed)
        regression = bool(self.task.get("regression_target"))
        labels = self.said.get(LABELS_KEY) or []
        scale = self.said.get(SCALE_KEY, 1.0)
        length, texts = self.said.get(LENGTH_KEY), None
        if (data := self._problem()) is not None:
            check_problem(self.said, outputs, regression, data, self.path)
            labels, scale = data.labels, data.target_scale
            length = length or data.max_positions
            texts = 2 if data.is_pairs else 1
        elif not {LABELS_KEY, SCALE_KEY} & self.said.keys():
            self.notes.append(UNKNOWN_LABELS)
        elif length is None:
            self.notes.append("it is not known where the fine-tuning cut texts")
        lengths = filter(None, (length, self.task.get("max_positions")))
        head = HeadConfig(
            outputs=outputs,
            inner_dim=inner_dim,
            pooling=self.model.get("pooling", "first"),
            activation=self.model["pooler_activation_fn"],
            dropout=self.model["pooler_dropout"],
            regression=regression,
            target_scale=scale,
        )
        # only sentence_prediction_metrics has it
        positive = (self.state["cfg"].get("criterion") or {}).get("positive_class")
        return {
            "head": head,
            "labels": list(labels),
            "sequence_length": min(lengths, default=None),
            "texts": texts,
            "positive_class": 1 if positive is None else positive,
        }

    def _problem(self) -> SentenceData | None:
        """The data of the fine-tuning, or of ``data``."""
        folder = self.data or str(self.task.get("data") or "").split(":")[0]
        try:
            return SentenceData.read(folder)
        except (OSError, ValueError) as error:
            if self.data is not None and (Path(self.data) / TEXTS).is_dir():
                raise CheckpointError(str(error)) from error
            self.notes.append(str(error))
            return None


def check_problem(
    said: Mapping[str, Any],
    outputs: int,
    regression: bool,
    data: SentenceData,
    path: Path,
) -> None:
    """Refuse a problem other than that of a fine-tuning.

    Args:
        said: the checkpoint's record, see ``check_labels``.
        outputs, regression: of its head.
        data: of the problem.
        path: of the checkpoint, for the message.

    Raises:
        CheckpointError: the problem has other labels, or another scale of scores.
    """
    if (data.num_classes, data.is_regression) != (outputs, regression):
        raise CheckpointError(
            f"{data.folder}: {data.num_classes} labels, "
            f"regression={data.is_regression}; {path} has a head of "
            f"{outputs} outputs, regression={regression} (--data)"
        )
    try:
        check_labels(said, data.labels or None, data.target_scale, path)
    except CheckpointError as error:
        raise CheckpointError(f"{error} (--data; here: {data.folder})") from error


def _texts_of(data: str | Path | None) -> str | Path | None:
    """The folder of the texts of a problem; other arguments unchanged."""
    texts = None if data is None else Path(data) / TEXTS
    return texts if texts is not None and texts.is_dir() else data
