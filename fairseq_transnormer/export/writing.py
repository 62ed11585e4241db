"""Writes a checkpoint of fairseq-train as an export, whole or not at all."""

from __future__ import annotations

import os
import shutil
from argparse import Namespace
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from torch import Tensor

from ..checkpoints.files import architecture as architecture_of
from ..checkpoints.files import embedding_rows
from ..checkpoints.identity import (
    LABELS_KEY,
    SCALE_KEY,
    check_dictionary,
    check_dictionary_file,
    check_labels,
    check_units,
    saved_units,
)
from ..checkpoints.safe_loading import CheckpointError, error_line, read_checkpoint
from ..data.fingerprints import file_sha256
from ..data.labelled_texts import SentenceData
from ..data.subword_files import (
    DICTIONARY,
    MASK,
    dictionary_folder,
    find_subword_files,
)
from ..modules.encoder_classifier import HeadConfig
from ..plugin.models import TransNormerEncoderModel, TransNormerLanguageModel
from .errors import ExportError
from .loading import check_tensors, load_exported, safetensors
from .manifest import (
    BIDIRECTIONAL,
    CAUSAL,
    CLASSIFIER,
    CONFIGS,
    MANIFEST,
    PREFIX,
    WEIGHTS,
    Manifest,
)
from .transformers_files import write_transformers_files
from .vocabulary import Vocabulary

# where fairseq's model has the plain PyTorch one, and where it has heads
PREFIXES = {CAUSAL: "decoder.model."} | dict.fromkeys(
    (BIDIRECTIONAL, CLASSIFIER), "encoder.model."
)
HEADS = "classification_heads."
FINE_TUNING = "sentence_prediction"
# of a problem's folder: the first texts
TEXTS = "input0"


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
    from safetensors import SafetensorError

    try:
        state = read_checkpoint(checkpoint, mmap=True)
    except CheckpointError as error:
        raise ExportError(str(error)) from error
    cfg = state.get("cfg") or {}
    if isinstance(cfg.get("model"), Namespace):  # fairseq's models by argparse
        cfg = {**cfg, "model": vars(cfg["model"])}
    parts = cfg.get("model"), cfg.get("task"), state["model"]
    if not all(isinstance(each, dict) for each in parts):
        raise ExportError(f"{checkpoint}: not a checkpoint of fairseq-train")
    try:
        done = _exported(checkpoint, dest, data, state, cfg)
    except ExportError:
        raise
    # on a full disk SafetensorError is no OSError
    except (OSError, SafetensorError) as error:
        raise ExportError(f"{dest}: cannot be made ({error})") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ExportError(f"{checkpoint}: settings: {error_line(error)}") from error
    return done


def _exported(
    checkpoint: Path,
    dest: Path,
    data: str | Path | None,
    state: dict[str, Any],
    cfg: dict[str, Any],
) -> Done:
    kind = _kind(checkpoint, cfg)
    tensors, notes = _plain_tensors(kind, cfg, state["model"])
    rows = embedding_rows(tensors)
    if rows is None:
        raise ExportError(f"{checkpoint}: no {PREFIXES[kind]}embed_tokens.weight in it")
    units, missing = _unit_files(checkpoint, state, data, rows)
    notes += missing
    manifest = _manifest(kind, cfg, rows, units.get(DICTIONARY))
    if kind == CLASSIFIER:
        manifest, missing = _with_head(manifest, checkpoint, state, tensors, data)
        notes += missing
    _write(dest, checkpoint, manifest, tensors, units)
    return Done(manifest.architecture, [MANIFEST, *manifest.files], notes)


def _kind(checkpoint: Path, cfg: dict[str, Any]) -> str:
    architecture = architecture_of(cfg["model"])
    model = MODEL_REGISTRY.get(architecture, object)
    if issubclass(model, TransNormerLanguageModel):
        return CAUSAL
    if issubclass(model, TransNormerEncoderModel):
        is_fine_tuned = cfg["task"].get("_name") == FINE_TUNING
        return CLASSIFIER if is_fine_tuned else BIDIRECTIONAL
    raise ExportError(
        f"{checkpoint}: a checkpoint of {architecture!r}; allowed: the language models "
        "that this package has in plain PyTorch, which are those with attention_types"
    )


def _plain_tensors(
    kind: str, cfg: dict[str, Any], state: dict[str, Tensor]
) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors by their names in the export; notes on what is left out."""
    renamed = {PREFIXES[kind]: PREFIX}
    name = cfg["task"].get("classification_head_name")
    if kind == CLASSIFIER:
        renamed[f"{HEADS}{name}."] = "classifier."
    tensors = {}
    for key, tensor in state.items():
        for old, new in renamed.items():
            if key.startswith(old):
                key = new + key.removeprefix(old)
                break
        if not key.startswith(HEADS):
            tensors[key] = tensor
    heads = {key.split(".")[1] for key in state if key.startswith(HEADS)}
    if kind == CLASSIFIER:
        heads.discard(name)
    return tensors, [
        f"the classification head {head!r} is not exported" for head in sorted(heads)
    ]


def _unit_files(
    checkpoint: Path, state: dict[str, Any], data: str | Path | None, rows: int
) -> tuple[dict[str, Path], list[str]]:
    """Dictionary and subword files by name; notes on what is missing."""
    trained_on = state["cfg"]["task"].get("data")
    if state["cfg"]["task"].get("_name") == FINE_TUNING:
        data = _texts_of(data)
        trained_on = str(_texts_of(trained_on or ""))
    try:
        folder = dictionary_folder(checkpoint, trained_on, data)
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
    # those of a problem stand beside the folder of its texts
    of_problem = [folder.parent] if folder.name == TEXTS else []
    folders = [*of_problem, folder, checkpoint.parent]
    try:
        units = find_subword_files(folders)
        belongs = [*of_problem, folder][0]
        check_units(saved_units(state), units, dictionary, belongs, checkpoint)
    except ValueError as error:
        raise ExportError(str(error)) from error
    notes = []
    if not units and dictionary.missing_units is not None:
        notes.append(
            f"no {dictionary.missing_units} in {' or '.join(map(str, folders))}: the "
            "export takes tokens, and no text"
        )
    found = {DICTIONARY: folder / DICTIONARY}
    return found | {path.name: path for path in units}, notes


def _texts_of(data: str | Path | None) -> str | Path | None:
    """The folder of the texts of a problem, or what is given where it is none."""
    texts = None if data is None else Path(data) / TEXTS
    return texts if texts is not None and texts.is_dir() else data


def _manifest(
    kind: str, cfg: dict[str, Any], rows: int, dictionary: Path | None
) -> Manifest:
    name = cfg["model"]["_name"]
    # as fairseq builds it: fields younger than the checkpoint have their defaults
    defaults = MODEL_DATACLASS_REGISTRY[name]()
    names = {each.name for each in fields(CONFIGS[kind])}
    values = {each: getattr(defaults, each) for each in names}
    values |= {each: cfg["model"][each] for each in names & cfg["model"].keys()}
    # whoever loads it may have another device
    values["backend"] = "auto"
    special = {"bos": 0, "pad": 1, "eos": 2, "unk": 3}
    if kind != CAUSAL:
        # appended to what dict.txt has, if that does not have it
        known = Vocabulary.read(dictionary) if dictionary else Vocabulary([])
        if MASK in known.numbers:
            special["mask"] = known.numbers[MASK]
        elif len(known.symbols) < rows:
            special["mask"] = rows - 1
    begins = kind != CAUSAL or cfg["task"].get("add_bos_token", False)
    return Manifest(
        architecture=name,
        kind=kind,
        vocab_size=rows,
        special_tokens=special,
        start_token=special["bos" if begins else "eos"],
        config=CONFIGS[kind](**values),
        files={},
    )


def _with_head(
    manifest: Manifest,
    checkpoint: Path,
    state: dict[str, Any],
    tensors: dict[str, Tensor],
    data: str | Path | None,
) -> tuple[Manifest, list[str]]:
    """The manifest of a classifier with its head; notes on what is not known."""
    cfg = state["cfg"]
    name = cfg["task"].get("classification_head_name")
    needed = {f"classifier.{part}.weight" for part in ("dense", "out_proj")}
    if not needed <= tensors.keys():
        raise ExportError(f"{checkpoint}: no classification head {name!r} in it")
    notes, labels, scale = [], [], 1.0
    folder = data or str(cfg["task"].get("data") or "").split(":")[0]
    outputs, inner_dim = (
        len(tensors[f"classifier.{part}.weight"]) for part in ("out_proj", "dense")
    )
    regression = bool(cfg["task"].get("regression_target"))
    try:
        found = SentenceData.read(folder)
        if (found.num_classes, found.is_regression) != (outputs, regression):
            raise ValueError(
                f"{folder}: {found.num_classes} labels; allowed for {checkpoint}: "
                f"{outputs}, the outputs of its head {name!r}"
            )
        check_labels(state, found.labels or None, found.target_scale, checkpoint)
        labels, scale = found.labels, found.target_scale
    except CheckpointError as error:
        raise ExportError(f"{error} (--data; here: {folder})") from error
    except ValueError as error:
        if data is not None:
            raise ExportError(str(error)) from error
        extra = state.get("extra_state") or {}
        labels, scale = extra.get(LABELS_KEY, []), extra.get(SCALE_KEY, scale)
        if not {LABELS_KEY, SCALE_KEY} & extra.keys():
            notes.append(f"the labels are not known: {error}")
    model = cfg["model"]
    try:
        head = HeadConfig(
            outputs=outputs,
            inner_dim=inner_dim,
            pooling=model.get("pooling", "first"),
            activation=model["pooler_activation_fn"],
            dropout=model["pooler_dropout"],
            regression=regression,
            target_scale=scale,
        )
    except ValueError as error:
        raise ExportError(f"{checkpoint}: {error}") from error
    return replace(manifest, head=head, labels=list(labels)), notes


def _write(
    dest: Path,
    checkpoint: Path,
    manifest: Manifest,
    tensors: dict[str, Tensor],
    units: dict[str, Path],
) -> None:
    """Fill a folder beside ``dest``, load it, and give it its name."""
    folder = dest.with_name(f".{dest.name}.partial")
    # of an export that was killed
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        model = manifest.build()
        own = manifest.tensors(model)
        # a tied matrix is in a checkpoint under both of its names
        prefix = "" if manifest.kind == CLASSIFIER else PREFIX
        tied = {f"{prefix}{name}" for name in model.state_dict()} - own.keys()
        tensors = {k: v.contiguous() for k, v in tensors.items() if k not in tied}
        check_tensors(own, tensors, checkpoint)
        safetensors().save_file(tensors, folder / WEIGHTS, {"format": "pt"})
        for name, source in units.items():
            shutil.copyfile(source, folder / name)
        for name in (WEIGHTS, *units):
            manifest.files[name] = file_sha256(folder / name)
        write_transformers_files(manifest, folder, has_units=bool(units))
        manifest.write(folder)
        # safetensors lets the owner alone read it
        shutil.copymode(folder / MANIFEST, folder / WEIGHTS)
        load_exported(folder)
        os.rename(folder, dest)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
