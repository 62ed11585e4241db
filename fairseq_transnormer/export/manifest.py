"""config.json of an export: what the model is, and which files belong to it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..checkpoints.added_fields import fill_in
from ..data.subword_files import DICTIONARY, GPT2_UNITS, SENTENCEPIECE_MODEL
from ..modules import (
    CausalLanguageModel,
    EncoderConfig,
    LanguageModelConfig,
    LayerConfig,
    MaskedLanguageModel,
)
from ..modules.options import Choice
from .errors import ExportError

FORMAT, VERSION = "fairseq_transnormer", 1
# a config.json has some 2,000; no size or value of a model comes near the other
MOST_BYTES, TOO_LARGE = 1_000_000, 2**31
MANIFEST, WEIGHTS = "config.json", "model.safetensors"
FILES = (WEIGHTS, DICTIONARY, SENTENCEPIECE_MODEL, *GPT2_UNITS)
# kind -> the model in plain PyTorch, and its configuration
MODELS = {
    "causal": (CausalLanguageModel, LanguageModelConfig),
    "bidirectional": (MaskedLanguageModel, EncoderConfig),
}


@dataclass(frozen=True)
class Manifest:
    """What config.json says.

    Attributes:
        architecture: fairseq's name of the model, for people.
        kind: a key of ``MODELS``.
        vocab_size: rows of the embedding.
        special_tokens: numbers of bos, pad, eos, unk and, bidirectional, mask.
        start_token: stands in front of a text.
        config: of the model.
        files: name -> SHA-256 of each other file.
    """

    architecture: str
    kind: str
    vocab_size: int
    special_tokens: dict[str, int]
    start_token: int
    config: LayerConfig
    files: dict[str, str]

    def build(self) -> CausalLanguageModel | MaskedLanguageModel:
        """The model with fresh weights, on torch's default device.

        Raises:
            ExportError: values of the configuration do not go together.
        """
        try:
            return MODELS[self.kind][0](
                self.config, self.vocab_size, self.special_tokens["pad"]
            )
        # torch's answers to sizes whose product is no 64-bit number
        except (ValueError, RuntimeError, TypeError, OverflowError) as error:
            reason = str(error).partition("\n")[0]
            raise ExportError(f"config: {reason}") from error

    def write(self, folder: Path) -> None:
        """Write config.json."""
        content = {"format": FORMAT, "format_version": VERSION, **asdict(self)}
        (folder / MANIFEST).write_text(
            json.dumps(content, indent=2) + "\n", encoding="utf-8"
        )

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read config.json.

        Raises:
            ExportError: it is missing, or not one of this format and version.
        """
        path = folder / MANIFEST
        try:
            if path.stat().st_size > MOST_BYTES:
                raise ExportError(f"{path}: damaged; allowed: up to {MOST_BYTES} bytes")
            content = json.loads(path.read_text(encoding="utf-8"))
        except ExportError:
            raise
        except (OSError, ValueError, RecursionError) as error:
            raise ExportError(f"{path}: missing or damaged ({error})") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ExportError(f"{path}: no export of this package; allowed: {FORMAT!r}")
        if content.get("format_version") != VERSION:
            raise ExportError(
                f"{path}: format_version={content.get('format_version')!r}; allowed: "
                f"{VERSION}. Another version of fairseq_transnormer wrote it"
            )
        del content["format"], content["format_version"]
        types = {
            "architecture": str,
            "kind": str,
            "vocab_size": int,
            "special_tokens": dict,
            "start_token": int,
            "config": dict,
            "files": dict,
        }
        missing = types.keys() - content.keys()
        if missing:
            raise ExportError(f"{path}: lacks {', '.join(sorted(missing))}")
        _check_types(path, "", content, types)
        if content["kind"] not in MODELS:
            raise ExportError(
                f"{path}: kind={content['kind']!r}; allowed: {', '.join(MODELS)}"
            )
        special = content["special_tokens"]
        if not {"bos", "pad", "eos", "unk"} <= special.keys():
            raise ExportError(f"{path}: special_tokens lack bos, pad, eos or unk")
        rows = content["vocab_size"]
        if rows < 1:
            raise ExportError(f"{path}: vocab_size={rows}; allowed: at least 1")
        tokens = {f"special_tokens.{name}": token for name, token in special.items()}
        for name, token in [*tokens.items(), ("start_token", content["start_token"])]:
            if type(token) is not int or not 0 <= token < rows:
                raise ExportError(
                    f"{path}: {name}={token!r}; allowed: 0 to {rows - 1}, a whole "
                    "number below vocab_size"
                )
        by_token: dict[int, str] = {}
        for name, token in special.items():
            if by_token.setdefault(token, name) != name:
                raise ExportError(
                    f"{path}: special_tokens.{name}={token!r}, as {by_token[token]}; "
                    "allowed: a number of its own for each"
                )
        unknown = content["files"].keys() - set(FILES)
        if unknown or WEIGHTS not in content["files"]:
            raise ExportError(
                f"{path}: files={sorted(content['files'])}; allowed: {WEIGHTS}, and "
                f"{', '.join(FILES[1:])}"
            )
        config = _read_config(path, MODELS[content["kind"]][1], content["config"])
        return cls(**(content | {"config": config}))


def _read_config(
    path: Path, config: type[LayerConfig], values: dict[str, Any]
) -> LayerConfig:
    kinds: dict[str, Any] = {each.name: each.type for each in fields(config)}
    types: dict[str, type] = {
        name: str if issubclass(kind, Choice) else kind for name, kind in kinds.items()
    }
    _check_types(path, "config.", values, types)
    # of other fields that are not there, the default is what models did before
    fill_in(values, types)
    try:
        return config(**values)
    except ValueError as error:
        raise ExportError(f"{path}: config.{error}") from error


def _check_types(
    path: Path, prefix: str, values: dict[str, Any], types: dict[str, type]
) -> None:
    unknown = values.keys() - types.keys()
    if unknown:
        raise ExportError(
            f"{path}: unknown {', '.join(prefix + name for name in sorted(unknown))}; "
            "a newer version of fairseq_transnormer may know it"
        )
    for name, value in values.items():
        kind = types[name]
        fits = type(value) is kind or (kind is float and type(value) is int)
        if not fits:
            raise ExportError(
                f"{path}: {prefix}{name}={repr(value)[:80]}; allowed: {kind.__name__}"
            )
        if kind in (int, float) and not abs(value) < TOO_LARGE:
            raise ExportError(
                f"{path}: {prefix}{name}={value!r}; allowed: numbers below {TOO_LARGE}"
            )
