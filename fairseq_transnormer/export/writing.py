"""Writes a checkpoint of fairseq-train as an export, whole or not at all."""

from __future__ import annotations

import os
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from torch import Tensor

from ..checkpoints.identity import check_dictionary, check_dictionary_file
from ..checkpoints.safe_loading import CheckpointError, read_checkpoint
from ..data.fingerprints import file_sha256
from ..data.subword_files import DICTIONARY, MASK, dictionary_folder
from ..models import TransNormerEncoderModel, TransNormerLanguageModel
from ..models.vanilla import VanillaEncoderModel
from .errors import ExportError
from .loading import check_tensors, load_exported, own_tensors, safetensors
from .manifest import (
    FILES,
    MANIFEST,
    MODELS,
    WEIGHTS,
    Manifest,
)
from .vocabulary import Vocabulary

# kind -> where fairseq's model has the plain PyTorch one
PREFIXES = {"causal": "decoder.model.", "bidirectional": "encoder.model."}
HEADS = "classification_heads."


class Done(NamedTuple):
    """What was exported: the architecture, the files, and what to know."""

    architecture: str
    files: list[str]
    notes: list[str]


def export_checkpoint(
    checkpoint: str | Path, dest: str | Path, data: str | Path | None = None
) -> Done:
    """Write ``dest``: config.json, model.safetensors, dictionary and subword units.

    Args:
        checkpoint: of fairseq-train.
        dest: folder to make.
        data: folder with dict.txt; by default that of the training, or else that of the
            checkpoint, if one of them is there.

    Raises:
        ExportError: ``dest`` exists; the checkpoint is none, or of an architecture that
            has no plain PyTorch model; the dictionary is another one.
    """
    checkpoint, dest = Path(checkpoint), Path(dest)
    if dest.exists() or dest.is_symlink():
        raise ExportError(f"{dest} exists; give a folder that does not")
    safetensors()
    try:
        state = read_checkpoint(checkpoint, mmap=True)
    except CheckpointError as error:
        raise ExportError(str(error)) from error
    cfg, weights = state.get("cfg") or {}, state.get("model")
    parts = cfg.get("model"), cfg.get("task"), weights
    if not all(isinstance(each, dict) for each in parts):
        raise ExportError(f"{checkpoint}: not a checkpoint of fairseq-train")
    kind = _kind(checkpoint, cfg["model"].get("_name"))
    tensors, notes = _plain_tensors(kind, state["model"])
    if "embed_tokens.weight" not in tensors:
        raise ExportError(f"{checkpoint}: no {PREFIXES[kind]}embed_tokens.weight in it")
    rows = len(tensors["embed_tokens.weight"])
    units, missing = _unit_files(checkpoint, state, data, rows)
    notes += missing
    try:
        manifest = _write(dest, checkpoint, kind, cfg, tensors, units)
    except OSError as error:
        raise ExportError(f"{dest}: cannot be written ({error})") from error
    return Done(manifest.architecture, [MANIFEST, *manifest.files], notes)


def _kind(checkpoint: Path, architecture: str | None) -> str:
    model = MODEL_REGISTRY.get(architecture, object)
    if issubclass(model, TransNormerLanguageModel):
        return "causal"
    if issubclass(model, TransNormerEncoderModel) and not issubclass(
        model, VanillaEncoderModel
    ):
        return "bidirectional"
    raise ExportError(
        f"{checkpoint}: a checkpoint of {architecture!r}; allowed: the language models "
        "that this package has in plain PyTorch, which are those with attention_types"
    )


def _plain_tensors(
    kind: str, state: dict[str, Tensor]
) -> tuple[dict[str, Tensor], list[str]]:
    """The plain model's tensors by their names there; notes on what is left out."""
    prefix = PREFIXES[kind]
    tensors = {
        name.removeprefix(prefix): tensor
        for name, tensor in state.items()
        if not name.startswith(HEADS)
    }
    heads = {name.split(".")[1] for name in state if name.startswith(HEADS)}
    return tensors, [
        f"the classification head {head!r} is not exported" for head in sorted(heads)
    ]


def _unit_files(
    checkpoint: Path, state: dict[str, Any], data: str | Path | None, rows: int
) -> tuple[dict[str, Path], list[str]]:
    """Dictionary and subword files by name; notes on what is missing."""
    try:
        folder = dictionary_folder(checkpoint, state["cfg"]["task"].get("data"), data)
    except ValueError as error:
        if data is not None:
            raise ExportError(str(error)) from error
        return {}, [str(error)]
    # as the export will read it
    dictionary = Vocabulary.read(folder / DICTIONARY)
    entries = len(dictionary.symbols)
    # masked_lm appends one when it trains
    if rows not in (entries, entries + (MASK not in dictionary.symbols)):
        raise ExportError(
            f"{folder / DICTIONARY}: {entries} entries; {checkpoint} was "
            f"trained with {rows} (--data names the folder of its dictionary)"
        )
    try:
        check_dictionary(state, dictionary, checkpoint)
        check_dictionary_file(folder / DICTIONARY)
    except CheckpointError as error:
        raise ExportError(f"{error} (--data; here: {folder})") from error
    found = {
        name: place / name
        for name in FILES
        for place in (checkpoint.parent, folder)
        if (place / name).is_file() and name != WEIGHTS
    }
    return found | {DICTIONARY: folder / DICTIONARY}, []


def _manifest(kind: str, cfg: dict[str, Any], rows: int) -> Manifest:
    name = cfg["model"]["_name"]
    # as fairseq builds it: fields younger than the checkpoint have their defaults
    defaults = MODEL_DATACLASS_REGISTRY[name]()
    names = {each.name for each in fields(MODELS[kind][1])}
    values = {each: getattr(defaults, each) for each in names}
    values |= {each: cfg["model"][each] for each in names & cfg["model"].keys()}
    # whoever loads it may have another device
    values["backend"] = "auto"
    special = {"bos": 0, "pad": 1, "eos": 2, "unk": 3}
    if kind == "bidirectional":
        special["mask"] = rows - 1
    begins = kind == "bidirectional" or cfg["task"].get("add_bos_token", False)
    return Manifest(
        architecture=name,
        kind=kind,
        vocab_size=rows,
        special_tokens=special,
        start_token=special["bos" if begins else "eos"],
        config=MODELS[kind][1](**values),
        files={},
    )


def _write(
    dest: Path,
    checkpoint: Path,
    kind: str,
    cfg: dict[str, Any],
    tensors: dict[str, Tensor],
    units: dict[str, Path],
) -> Manifest:
    """Fill a folder beside ``dest``, load it, and give it its name."""
    folder = dest.with_name(f".{dest.name}.{os.getpid()}.partial")
    folder.mkdir(parents=True)
    try:
        manifest = _manifest(kind, cfg, len(tensors["embed_tokens.weight"]))
        model = manifest.build()
        own = own_tensors(model)
        # a tied matrix is in a checkpoint under both of its names
        tied = model.state_dict().keys() - own.keys()
        tensors = {k: v.contiguous() for k, v in tensors.items() if k not in tied}
        check_tensors(own, tensors, checkpoint)
        safetensors().save_file(tensors, folder / WEIGHTS, {"format": "pt"})
        for name, source in units.items():
            shutil.copyfile(source, folder / name)
        for name in (WEIGHTS, *units):
            manifest.files[name] = file_sha256(folder / name)
        manifest.write(folder)
        # safetensors lets the owner alone read it
        shutil.copymode(folder / MANIFEST, folder / WEIGHTS)
        load_exported(folder)
        os.rename(folder, dest)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return manifest
