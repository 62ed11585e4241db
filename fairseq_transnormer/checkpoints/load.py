"""Load a trained model, from a checkpoint or an exported folder, as plain PyTorch.

    trained = load("checkpoints/checkpoint_best.pt")   # or the folder of an export
    logits = trained.model(torch.tensor([[2, *trained.words.encode("The river")]]))

Neither fairseq nor transformers is needed, and no code in the files runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from ..data.fingerprints import file_sha256, mark_of
from ..data.subword_files import DICTIONARY, GPT2_UNITS, SENTENCEPIECE_MODEL
from ..modules.registry import parse_attention_types
from .convert import Parts, read_parts
from .identity import (
    KEY,
    UNITS_KEY,
    check_dictionary,
    compare,
    weights_fingerprint,
)
from .manifest import (
    CAUSAL,
    CLASSIFIER,
    MANIFEST,
    PREFIX,
    Manifest,
    PlainModel,
    is_weights,
)
from .safe_loading import CheckpointError, error_line
from .saving import settle
from .vocabulary import Vocabulary


@dataclass(frozen=True)
class TrainedModel:
    """A model with its description and vocabulary.

    Attributes:
        path: of the checkpoint or the exported folder.
        model: in plain PyTorch, float32, in evaluation mode.
        manifest: its description.
        vocabulary: of its dictionary; None if the dictionary is missing.
        data: the folder of the training's data, as named at the training; "" if
            unknown.
        notes: sentences on missing parts.
        mark: of the checkpoint's file before it was read.
    """

    path: Path
    model: PlainModel
    manifest: Manifest
    vocabulary: Vocabulary | None
    data: str = ""
    notes: tuple[str, ...] = ()
    mark: tuple[int, ...] = ()

    @property
    def words(self) -> Vocabulary:
        """The vocabulary.

        Raises:
            CheckpointError: there is none, or its subword files are missing.
        """
        if self.vocabulary is None or self.vocabulary.missing_units is not None:
            notes = "; ".join(self.notes) or f"no {DICTIONARY} in it"
            raise CheckpointError(f"{self.path}: {notes}")
        return self.vocabulary

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next(self.model.parameters()).device

    def fingerprint(self) -> str:
        """SHA-256 of the weights.

        That is ``weights_fingerprint``, or for an export that of its files of weights.

        Raises:
            CheckpointError: the file was replaced since it was read.
        """
        if self.path.is_file():
            found = weights_fingerprint(self.path)
            if mark_of(self.path) != self.mark:
                raise CheckpointError(f"{self.path}: replaced since it was read")
            return found
        files = self.manifest.files
        return "+".join(files[name] for name in sorted(files) if is_weights(name))


def load(
    path: str | Path,
    data: str | Path | None = None,
    sentencepiece_model: str | Path | None = None,
    device: str | torch.device = "cpu",
) -> TrainedModel:
    """Load a trained model.

    Args:
        path: a checkpoint of fairseq-train, of this package's causal or masked language
            models or fine-tuned classifiers; or the folder of its export.
        data: for a checkpoint, the folder with dict.txt, or of a problem; by default
            that of the training, or else that of the checkpoint.
        sentencepiece_model: for a checkpoint; by default the subword files in these
            folders.
        device: of the model.

    Raises:
        CheckpointError: a file is missing, damaged or of another kind; weights and
            settings do not fit; the dictionary, subword files or labels are not those
            of the training.
    """
    path = Path(path)
    mark = mark_of(path) if path.is_file() else ()
    parts = _parts_of(path, data, sentencepiece_model)
    return replace(trained_model(parts, build(parts).to(device), path), mark=mark)


def trained_model(parts: Parts, model: PlainModel, path: Path) -> TrainedModel:
    """A ``TrainedModel`` of a model and its parts; ``path`` is its present place."""
    notes = tuple(parts.notes)
    return TrainedModel(
        path, model, parts.manifest, parts.vocabulary, parts.data, notes
    )


def _parts_of(
    path: Path, data: str | Path | None, sentencepiece_model: str | Path | None
) -> Parts:
    # transformers' Trainer puts its own *.pt into the folder of a model
    is_export = (path / MANIFEST).is_file() or not any(path.glob("*.pt"))
    if path.is_dir() and is_export:
        if data is not None or sentencepiece_model is not None:
            raise CheckpointError(
                f"{path}: an exported folder has its dictionary and subword files; "
                "allowed: neither --data nor --sentencepiece-model"
            )
        return _parts_of_folder(path)
    return read_parts(path, data, sentencepiece_model)


def units_among(files: Mapping[str, Path]) -> tuple[Path, ...]:
    """The subword files among files of an exported folder, by name."""
    for names in ((SENTENCEPIECE_MODEL,), GPT2_UNITS):
        if all(name in files for name in names):
            return tuple(files[name] for name in names)
    return ()


@torch.no_grad()
def build(parts: Parts) -> PlainModel:
    """The model, float32, in evaluation mode.

    Raises:
        CheckpointError: the tensors are not the model's, or not finite.
    """
    manifest = parts.manifest
    model = manifest.build()
    own = manifest.tensors(model)
    tensors = without_tied(model, manifest, parts.tensors)
    check_tensors(own, tensors, parts.path)
    check_finite(parts.path, tensors.items())
    for name, tensor in own.items():
        tensor.copy_(tensors[name])
    return model.eval()


def without_tied(
    model: nn.Module, manifest: Manifest, tensors: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Each tensor once: a checkpoint has a tied matrix under both names."""
    prefix = "" if manifest.kind == CLASSIFIER else PREFIX
    every = {f"{prefix}{name}" for name in model.state_dict()}
    tied = every - manifest.tensors(model).keys()
    return {name: x for name, x in tensors.items() if name not in tied}


def check_vocabulary(manifest: Manifest, vocabulary: Vocabulary, path: Path) -> None:
    """Refuse a dictionary, or subword files, that the model was not trained with.

    Raises:
        CheckpointError: they differ from the manifest.
    """
    said = {KEY: manifest.dictionary_sha256, UNITS_KEY: manifest.units_sha256}
    check_dictionary(said, vocabulary, path)
    here = {UNITS_KEY: vocabulary.units_sha256()}
    compare(said, here, path, "the subword files of its training")


def _parts_of_folder(folder: Path) -> Parts:
    manifest = read_manifest(folder)
    tensors = read_weights(manifest, folder)
    files = {name: folder / name for name in manifest.files if not is_weights(name)}
    vocabulary = None
    if DICTIONARY in files:
        units, has_mask = units_among(files), manifest.kind != CAUSAL
        rows = manifest.vocab_size
        vocabulary = Vocabulary.read(files[DICTIONARY], units, rows, has_mask)
        check_vocabulary(manifest, vocabulary, folder)
    return Parts(folder, manifest, tensors, files, vocabulary)


def read_manifest(folder: Path, only: Collection[str] | None = None) -> Manifest:
    """The manifest of a folder, after a check of the folder's files.

    only: names of the files to check; all by default.

    Raises:
        CheckpointError: a file is missing, truncated, changed, or of another format.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder")
    manifest = settle(folder)
    for name, expected in manifest.files.items():
        if only is not None and name not in only:
            continue
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder / name}: missing")
        if file_sha256(folder / name) != expected:
            raise CheckpointError(
                f"{folder / name}: truncated or changed; its SHA-256 is not that of "
                "the export"
            )
    return manifest


def read_weights(manifest: Manifest, folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder, which stay on the disk until they are used.

    Names, shapes and types are compared before memory is allocated for a model.

    Raises:
        CheckpointError: a file is damaged, or they are not of the manifest's model.
    """
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = {}
    for name in manifest.files:
        if name.endswith(".safetensors"):
            try:
                tensors |= load_file(folder / name)
            # SafetensorError is only an Exception
            except Exception as error:
                reason = error_line(error)
                raise CheckpointError(f"{folder / name}: damaged ({reason})") from error
    try:
        layers = len(parse_attention_types(manifest.config.attention_types))
    except ValueError as error:
        raise CheckpointError(f"{folder}: config.{error}") from error
    if layers > len(tensors):
        raise CheckpointError(
            f"{folder}: config.attention_types={manifest.config.attention_types!r:.80},"
            f" {layers} layers; allowed: those that its weights have"
        )
    # no memory on this device
    with torch.device("meta"):
        own = manifest.tensors(manifest.build())
    check_tensors(own, tensors, folder)
    return tensors


def check_finite(path: str | Path, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Raise CheckpointError if a tensor has numbers that are NaN or infinite."""
    for name, tensor in tensors:
        if not tensor.is_meta and not tensor.isfinite().all():
            raise CheckpointError(
                f"{path}: {name} has numbers that are NaN or infinite"
            )


# those that torch computes with; float8 is for storage
FLOATS = {torch.float64, torch.float32, torch.float16, torch.bfloat16}


def check_tensors(
    own: Mapping[str, Tensor], stored: Mapping[str, Tensor], where: str | Path
) -> None:
    """Raise CheckpointError unless names, shapes and kinds of numbers are equal."""
    for problem, names in (
        ("lacks", own.keys() - stored.keys()),
        ("has unknown", stored.keys() - own.keys()),
    ):
        if names:
            shown = ", ".join(sorted(names)[:20])
            raise CheckpointError(f"{where}: {problem} tensors: {shown}")
    for name, tensor in own.items():
        shape, found = tuple(stored[name].shape), stored[name].dtype
        if shape != tuple(tensor.shape):
            raise CheckpointError(
                f"{where}: {name} has the shape {shape}; allowed: {tuple(tensor.shape)}"
            )
        are_floats = {found, tensor.dtype} <= FLOATS
        if found != tensor.dtype and not are_floats:
            kind = "floats" if tensor.dtype.is_floating_point else tensor.dtype
            raise CheckpointError(
                f"{where}: {name} is of the type {found}; allowed: {kind}"
            )
