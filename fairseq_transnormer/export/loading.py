"""Loads an export into plain PyTorch."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from ..data.fingerprints import file_sha256
from ..data.subword_files import (
    DICTIONARY,
    GPT2_UNITS,
    MASK,
    SENTENCEPIECE_MODEL,
    SPECIAL,
)
from ..missing_packages import explanation
from ..modules import CausalLanguageModel, MaskedLanguageModel
from ..modules.encoder_classifier import EncoderClassifier
from ..modules.registry import parse_attention_types
from .continuation import Settings, continue_tokens
from .errors import ExportError
from .manifest import (
    CAUSAL,
    MANIFEST,
    WEIGHTS,
    WEIGHTS_INDEX,
    Manifest,
    belongs,
)
from .vocabulary import Vocabulary

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Exported:
    """A model that was exported.

    Attributes:
        model: in evaluation, float32.
        manifest: what it is.
        vocabulary: of its dictionary; None if the export has none.
    """

    model: CausalLanguageModel | MaskedLanguageModel | EncoderClassifier
    manifest: Manifest
    vocabulary: Vocabulary | None

    def continue_tokens(self, tokens: Tensor, **settings: Unpack[Settings]) -> Tensor:
        """``continuation.continue_tokens`` of this model, to the end of a line.

        tokens: int64 (B, N), with ``manifest.start_token`` in front.
        """
        model = self._causal_model()
        special = self.manifest.special_tokens
        return continue_tokens(
            model, tokens, end=special["eos"], pad=special["pad"], **settings
        )

    def continue_text(self, text: str, **settings: Unpack[Settings]) -> str:
        """The text and what the model writes after it.

        Args:
            text: the beginning of a line.
            settings: of ``continuation.continue_tokens``.

        Raises:
            ExportError: a setting is not allowed; the model is bidirectional; the
                export has no dictionary, or one of units that are not supported.
        """
        model = self._causal_model()
        if self.vocabulary is None:
            raise ExportError(f"the export has no {DICTIONARY}; use continue_tokens")
        start = [self.manifest.start_token, *self.vocabulary.encode(text)]
        device = model.embed_tokens.weight.device
        tokens = self.continue_tokens(torch.tensor([start], device=device), **settings)
        return self.vocabulary.decode(tokens[0, 1:].tolist())

    def _causal_model(self) -> CausalLanguageModel:
        if not isinstance(self.model, CausalLanguageModel):
            raise ExportError(
                f"{self.manifest.architecture} is bidirectional; only causal models "
                "continue texts"
            )
        return self.model


def load_exported(folder: str | Path, device: str | torch.device = "cpu") -> Exported:
    """Load what ``python -m fairseq_transnormer export`` wrote.

    Names, shapes and types of the weights are compared with the configuration before
    memory is taken for a model.

    Raises:
        ExportError: a file is missing, truncated, changed, or of another format, or
            does not go with another one.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    if WEIGHTS_INDEX in manifest.files:
        raise ExportError(
            f"{folder / WEIGHTS_INDEX}: the weights are split; allowed: {WEIGHTS} "
            "alone, which save_pretrained(max_shard_size=...) writes up to that size"
        )
    check_weights(manifest, folder)
    vocabulary = None
    if DICTIONARY in manifest.files:
        vocabulary = read_vocabulary(folder, manifest.files)
        _check_vocabulary(manifest, vocabulary, folder / DICTIONARY)
    model = manifest.build()
    _fill(model, manifest, folder / WEIGHTS)
    return Exported(model.to(device).eval(), manifest, vocabulary)


def read_manifest(folder: Path, only: Collection[str] | None = None) -> Manifest:
    """The manifest of a folder whose files are those that it was written with.

    only: names of the files to look at; all by default.

    Raises:
        ExportError: a file is missing, truncated, changed, or of another format.
    """
    if not folder.is_dir():
        raise ExportError(f"{folder}: no such folder")
    manifest = Manifest.read(folder)
    settle(folder, manifest.files)
    for name, expected in manifest.files.items():
        if only is not None and name not in only:
            continue
        if not (folder / name).is_file():
            raise ExportError(f"{folder / name}: missing")
        if file_sha256(folder / name) != expected:
            raise ExportError(
                f"{folder / name}: truncated or changed; its SHA-256 is not that of "
                "the export"
            )
    return manifest


def settle(folder: Path, files: Collection[str]) -> None:
    """Give the files of a save their names, if it ended before it did.

    files: names of those that belong to the folder's config.json.

    Raises:
        ExportError: the folder cannot be written to.
    """
    digits = file_sha256(folder / MANIFEST)[:16]
    new = sorted(folder.glob(f"*.{digits}.new"))
    try:
        if new:
            for path in folder.iterdir():
                if belongs(path.name) and path.name not in files:
                    path.unlink()
        for path in new:
            path.replace(path.with_name(path.name.removesuffix(f".{digits}.new")))
    except OSError as error:
        raise ExportError(
            f"{folder}: a save did not end, nor can be ({error})"
        ) from error


def read_vocabulary(folder: Path, files: Collection[str]) -> Vocabulary:
    """The vocabulary of a folder's dictionary and its subword units, if it has any.

    files: names of those that belong to the export.

    Raises:
        ExportError: see ``Vocabulary.read``.
    """
    units = folder / SENTENCEPIECE_MODEL if SENTENCEPIECE_MODEL in files else None
    gpt2 = None
    if units is None and set(GPT2_UNITS) <= set(files):
        encoder, merges = (folder / name for name in GPT2_UNITS)
        gpt2 = (encoder, merges)
    return Vocabulary.read(folder / DICTIONARY, units, gpt2)


def safetensors() -> ModuleType:
    """``safetensors.torch``.

    Raises:
        ExportError: it is not installed.
    """
    try:
        import safetensors.torch
    except ImportError as error:
        raise ExportError(explanation(error)) from error
    return safetensors.torch


class Stored(NamedTuple):
    """A tensor in a file, as ``check_tensors`` compares it."""

    shape: tuple[int, ...]
    dtype: torch.dtype | None


# safetensors' names; of others nothing of ours is made
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def _read_header(path: Path) -> dict[str, Stored]:
    """Names, shapes and types of a file's tensors, without its tensors."""
    safetensors()
    from safetensors import safe_open

    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {
                name: Stored(tuple(each.get_shape()), DTYPES.get(each.get_dtype()))
                for name, each in slices.items()
            }
    # SafetensorError is no more than an Exception
    except Exception as error:
        raise ExportError(f"{path}: damaged ({str(error)[:200]})") from error


def check_weights(manifest: Manifest, folder: Path) -> None:
    """Raise ExportError unless the files of weights have those of the manifest."""
    stored: dict[str, Stored] = {}
    for name in manifest.files:
        if name.endswith(".safetensors"):
            stored |= _read_header(folder / name)
    _check_sizes(manifest, stored, folder)
    # no memory on this device
    with torch.device("meta"):
        own = manifest.tensors(manifest.build())
    check_tensors(own, stored, folder / WEIGHTS)


def check_finite(path: str | Path, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Raise ExportError where a tensor has numbers that are NaN or infinite."""
    for name, tensor in tensors:
        if not tensor.is_meta and not tensor.isfinite().all():
            raise ExportError(f"{path}: {name} has numbers that are NaN or infinite")


def _check_sizes(manifest: Manifest, stored: dict[str, Stored], folder: Path) -> None:
    """What even a model without memory takes time for: its width and its layers."""
    path, embedding = folder / WEIGHTS, manifest.embedding
    if embedding not in stored:
        raise ExportError(f"{path}: lacks tensors: {embedding}")
    expected = manifest.vocab_size, manifest.config.embed_dim
    if stored[embedding].shape != expected:
        raise ExportError(
            f"{path}: {embedding} has the shape {stored[embedding].shape}; allowed: "
            f"{expected}, (vocab_size, embed_dim) of {MANIFEST}"
        )
    try:
        layers = len(parse_attention_types(manifest.config.attention_types))
    except ValueError as error:
        raise ExportError(f"{folder / MANIFEST}: config.{error}") from error
    if layers > len(stored):
        raise ExportError(
            f"{folder / MANIFEST}: config.attention_types="
            f"{manifest.config.attention_types!r}, {layers} layers; allowed: what "
            f"{path} has the tensors of"
        )


def _check_vocabulary(manifest: Manifest, vocabulary: Vocabulary, path: Path) -> None:
    symbols = vocabulary.symbols
    allowed = {len(symbols)}
    # masked_lm and sentence_prediction append one to what dict.txt has
    if manifest.kind != CAUSAL and MASK not in symbols:
        allowed.add(len(symbols) + 1)
    if manifest.vocab_size not in allowed:
        raise ExportError(
            f"{path}: {len(symbols)} entries with the special ones; allowed: "
            f"{manifest.vocab_size}, vocab_size of {MANIFEST}"
        )
    for name, symbol in zip(("bos", "pad", "eos", "unk"), SPECIAL, strict=True):
        token = manifest.special_tokens[name]
        if symbols[token] != symbol:
            raise ExportError(
                f"{path}: entry {token} is {symbols[token]!r}, and {MANIFEST} has "
                f"special_tokens.{name}={token}; allowed: {symbols.index(symbol)}"
            )


@torch.no_grad()
def _fill(model: nn.Module, manifest: Manifest, path: Path) -> None:
    stored = safetensors().load_file(path)
    check_finite(path, stored.items())
    for name, tensor in manifest.tensors(model).items():
        tensor.copy_(stored[name])


def check_tensors(
    own: dict[str, Tensor], stored: dict[str, Any], where: str | Path
) -> None:
    """Raise ExportError unless both have the same names, shapes and kinds of numbers.

    stored: have ``shape`` and ``dtype``.
    """
    for problem, names in (
        ("lacks", own.keys() - stored.keys()),
        ("has unknown", stored.keys() - own.keys()),
    ):
        if names:
            shown = ", ".join(sorted(names)[:20])
            raise ExportError(f"{where}: {problem} tensors: {shown}")
    for name, tensor in own.items():
        if tuple(stored[name].shape) != tuple(tensor.shape):
            raise ExportError(
                f"{where}: {name} has the shape {tuple(stored[name].shape)}; allowed: "
                f"{tuple(tensor.shape)}"
            )
        found = stored[name].dtype
        is_of_kind = found == tensor.dtype or (
            found is not None
            and found.is_floating_point
            and tensor.dtype.is_floating_point
        )
        if not is_of_kind:
            kind = "floats" if tensor.dtype.is_floating_point else tensor.dtype
            raise ExportError(
                f"{where}: {name} is of the type {found}; allowed: {kind}"
            )
