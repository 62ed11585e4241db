"""Export a checkpoint of fairseq-train as safetensors and JSON.

The folder has config.json, model.safetensors and, if they are found, dict.txt and the
subword files. fairseq_transnormer.checkpoints.load reads it, and so does transformers
after "import fairseq_transnormer.hf". Neither needs fairseq or pickle.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..data.fingerprints import file_sha256
from ..data.subword_files import MASK, SPECIAL
from ..data.whole_files import write_text
from ..modules import LanguageModelConfig
from .convert import Parts, read_parts
from .load import TrainedModel, build, load, trained_model, without_tied
from .manifest import (
    CAUSAL,
    CLASSIFIER,
    MANIFEST,
    WEIGHTS,
    Manifest,
    PlainModel,
    belongs,
)
from .safe_loading import CheckpointError, error_line

TOKENIZER, GENERATION = "tokenizer_config.json", "generation_config.json"


def export_checkpoint(
    checkpoint: str | Path, dest: str | Path, data: str | Path | None = None
) -> TrainedModel:
    """Write a complete ``dest``, or nothing.

    Args:
        checkpoint: of fairseq-train.
        dest: folder to make: config.json, model.safetensors, dictionary and subword
            files, and files for transformers' tokenizer and ``generate``.
        data: see ``load``.

    Returns:
        the result of ``load(dest)``, with notes on missing parts.

    Raises:
        CheckpointError: ``dest`` exists or cannot be written; see ``load``.
    """
    from safetensors import SafetensorError

    checkpoint, dest = Path(checkpoint), Path(dest)
    if dest.exists() or dest.is_symlink():
        raise CheckpointError(f"{dest} exists; name a folder that does not")
    parts = read_parts(checkpoint, data, None)
    model = build(parts)
    try:
        with _temporary(dest) as folder:
            _fill(folder, parts, model)
            load(folder)
            os.rename(folder, dest)
    # on a full disk SafetensorError is no OSError
    except (OSError, SafetensorError) as error:
        reason = error_line(error)
        raise CheckpointError(f"{dest}: cannot be made ({reason})") from error
    return trained_model(parts, model, dest)


@contextmanager
def _temporary(dest: Path) -> Iterator[Path]:
    """A folder next to ``dest`` for this process; it is removed afterwards.

    Only one process at a time has it, also after a kill: the folder itself is locked.
    """
    folder = dest.with_name(f".{dest.name}.partial")
    folder.mkdir(parents=True, exist_ok=True)
    own = os.open(folder, os.O_RDONLY)

    def is_own() -> bool:
        return folder.exists() and os.path.samestat(os.fstat(own), folder.stat())

    try:
        try:
            fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CheckpointError(f"{dest}: another process is making it") from error
        if not is_own():
            raise CheckpointError(f"{dest}: another process has made it")
        # left by an export that was killed
        for path in folder.iterdir():
            if not (belongs(path.name) or path.suffix in (".json", ".tmp")):
                raise CheckpointError(f"{path}: not a file of ours; remove it")
            path.unlink()
        try:
            yield folder
        finally:
            if is_own():  # it has not been renamed
                shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(own)


def _fill(folder: Path, parts: Parts, model: PlainModel) -> None:
    """Write the files; the manifest gets their SHA-256."""
    from safetensors.torch import save_file

    manifest = parts.manifest
    tensors = without_tied(model, manifest, parts.tensors)
    tensors = {name: x.contiguous() for name, x in tensors.items()}
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})
    for name, source in parts.files.items():
        shutil.copyfile(source, folder / name)
    for name in (WEIGHTS, *parts.files):
        manifest.files[name] = file_sha256(folder / name)
    if parts.files:
        _write(folder / TOKENIZER, tokenizer_settings(manifest))
    if manifest.kind == CAUSAL:
        _write(folder / GENERATION, generation_settings(manifest))
    manifest.write(folder)
    # safetensors lets only the owner read it
    shutil.copymode(folder / MANIFEST, folder / WEIGHTS)


def tokenizer_settings(manifest: Manifest) -> dict[str, Any]:
    """The content of tokenizer_config.json."""
    bos, pad, eos, unk = SPECIAL
    settings = {
        "tokenizer_class": "TransNormerTokenizer",
        "vocab_size": manifest.vocab_size,
        "bos_token": SPECIAL[manifest.start_token],
        "eos_token": eos,
        "pad_token": pad,
        "unk_token": unk,
    }
    if isinstance(manifest.config, LanguageModelConfig):
        # generated tokens follow at the end of each row
        return settings | {"padding_side": "left"}
    if "mask" in manifest.special_tokens:
        settings["mask_token"] = MASK
    longest = manifest.config.max_positions
    if manifest.kind == CLASSIFIER:
        settings["breaks_as_spaces"] = True
        longest = manifest.sequence_length or longest
    return settings | {
        "cls_token": bos,
        "sep_token": eos,
        "padding_side": "right",
        "model_max_length": longest,
    }


def generation_settings(manifest: Manifest) -> dict[str, Any]:
    """The content of generation_config.json. As in fairseq, pads are not generated."""
    special = manifest.special_tokens
    return {
        "bos_token_id": manifest.start_token,
        "eos_token_id": special["eos"],
        "pad_token_id": special["pad"],
        "suppress_tokens": [special["pad"]],
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2) + "\n")
