"""config.json of an export: what the model is, and which files belong to it.

transformers reads the same file: its own fields are on top, all that is said here is in
the section ``fairseq_transnormer``.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

from ..checkpoints.added_fields import fill_in
from ..data.subword_files import DICTIONARY, GPT2_UNITS, SENTENCEPIECE_MODEL
from ..data.whole_files import write_text
from ..modules import (
    CausalLanguageModel,
    EncoderConfig,
    LanguageModelConfig,
    LayerConfig,
    MaskedLanguageModel,
)
from ..modules.encoder_classifier import (
    ClassificationHead,
    EncoderClassifier,
    HeadConfig,
)
from ..modules.options import Choice
from .errors import ExportError

# of the section and, as model_type, of transformers
FORMAT = "fairseq_transnormer"
# of a language model's tensors, which transformers' classes have as ``model``
PREFIX = "model."
# 1: all on top, and tensors by the names that the plain model has for them
VERSION, FLAT = 2, 1
# a config.json has some 2,000; no size or value of a model comes near the other
MOST_BYTES, TOO_LARGE = 1_000_000, 2**31
MANIFEST, WEIGHTS = "config.json", "model.safetensors"
WEIGHTS_INDEX = f"{WEIGHTS}.index.json"
# what transformers writes where it is told to split the weights
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
FILES = (WEIGHTS, DICTIONARY, SENTENCEPIECE_MODEL, *GPT2_UNITS)
# a file on its way, with digits of the config.json that it belongs to
NEW = re.compile(r".+\.[0-9a-f]{16}\.new")
ConfigT = TypeVar("ConfigT", bound=LayerConfig | HeadConfig)
# kind -> configuration, and the class that transformers loads it as
CAUSAL, BIDIRECTIONAL, CLASSIFIER = "causal", "bidirectional", "classifier"
CONFIGS: dict[str, type[LanguageModelConfig] | type[EncoderConfig]] = {
    CAUSAL: LanguageModelConfig,
    BIDIRECTIONAL: EncoderConfig,
    CLASSIFIER: EncoderConfig,
}
ARCHITECTURES = {
    CAUSAL: "TransNormerForCausalLM",
    BIDIRECTIONAL: "TransNormerForMaskedLM",
    CLASSIFIER: "TransNormerForSequenceClassification",
}


@dataclass(frozen=True)
class Manifest:
    """What config.json says.

    Attributes:
        architecture: fairseq's name of the model, for people.
        kind: a key of ``CONFIGS``.
        vocab_size: rows of the embedding.
        special_tokens: numbers of bos, pad, eos, unk and, where there is one, mask.
        start_token: stands in front of a text.
        config: of the model.
        files: name -> SHA-256 of each other file.
        head: of a classifier.
        labels: of a classifier, by the numbers of its outputs; none if unknown.
        format_version: of the file that it was read from.
    """

    architecture: str
    kind: str
    vocab_size: int
    special_tokens: dict[str, int]
    start_token: int
    config: LanguageModelConfig | EncoderConfig
    files: dict[str, str]
    head: HeadConfig | None = None
    labels: list[str] = field(default_factory=list)
    format_version: int = VERSION

    def build(self) -> CausalLanguageModel | MaskedLanguageModel | EncoderClassifier:
        """The model with fresh weights, on torch's default device.

        Raises:
            ExportError: values of the configuration do not go together.
        """
        model = self.build_language_model()
        if isinstance(model, MaskedLanguageModel) and self.head is not None:
            return EncoderClassifier(model, self.build_head())
        return model

    def build_language_model(self) -> CausalLanguageModel | MaskedLanguageModel:
        """``build`` of a classifier without its head."""
        rows, pad = self.vocab_size, self.special_tokens["pad"]
        try:
            if isinstance(self.config, LanguageModelConfig):
                return CausalLanguageModel(self.config, rows, pad)
            return MaskedLanguageModel(self.config, rows, pad)
        # torch's answers to sizes whose product is no 64-bit number
        except (ValueError, RuntimeError, TypeError, OverflowError) as error:
            reason = str(error).partition("\n")[0]
            raise ExportError(f"config: {reason}") from error

    def build_head(self) -> ClassificationHead:
        """The head of a classifier."""
        if self.head is None:
            raise ValueError(f"kind={self.kind!r}; allowed: {CLASSIFIER!r}")
        return ClassificationHead(self.head, self.config.embed_dim)

    def tensors(self, model: nn.Module) -> dict[str, Tensor]:
        """``own_tensors`` of what ``build`` returned, by their names in the file."""
        own = own_tensors(model)
        if self.format_version == FLAT or self.kind == CLASSIFIER:
            return own
        return {f"{PREFIX}{name}": tensor for name, tensor in own.items()}

    @property
    def embedding(self) -> str:
        """The name of the token embedding in the file."""
        prefix = "" if self.format_version == FLAT else PREFIX
        return f"{prefix}embed_tokens.weight"

    def content(self) -> dict[str, Any]:
        """What the section of config.json holds, without the files."""
        content = asdict(self) | {"format_version": VERSION}
        del content["files"]
        if self.kind != CLASSIFIER:
            del content["head"], content["labels"]
        return json.loads(json.dumps(content))

    def write(self, folder: Path) -> None:
        """Write config.json."""
        content = {
            "model_type": FORMAT,
            "architectures": [ARCHITECTURES[self.kind]],
            FORMAT: self.content() | {"files": self.files},
        }
        write_text(folder / MANIFEST, json.dumps(content, indent=2) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read config.json.

        Raises:
            ExportError: it is missing, or not one of this format and version.
        """
        path = folder / MANIFEST
        content = read_section(folder)
        if "files" not in content:
            raise ExportError(f"{path}: lacks files, which is written last")
        files = content.pop("files")
        _check_types(path, "", {"files": files}, {"files": dict})
        if not files.keys() & {WEIGHTS, WEIGHTS_INDEX} or not all(map(belongs, files)):
            raise ExportError(
                f"{path}: files={sorted(files)}; allowed: {WEIGHTS}, and "
                f"{', '.join(FILES[1:])}"
            )
        return cls.of_content(content, path, files)

    @classmethod
    def of_content(
        cls, content: dict[str, Any], path: Path | str, files: dict[str, str]
    ) -> Manifest:
        """The manifest that ``content`` describes.

        Args:
            content: of the section, without the files.
            path: of config.json, for messages.
            files: name -> SHA-256.

        Raises:
            ExportError: a value is not allowed.
        """
        content = dict(content)
        version = content.pop("format_version", None)
        if version not in (FLAT, VERSION):
            raise ExportError(
                f"{path}: format_version={version!r}; allowed: {FLAT}, {VERSION}. "
                "Another version of fairseq_transnormer wrote it"
            )
        types = {
            "architecture": str,
            "kind": str,
            "vocab_size": int,
            "special_tokens": dict,
            "start_token": int,
            "config": dict,
        }
        if content.get("kind") == CLASSIFIER:
            types |= {"head": dict, "labels": list}
        missing = types.keys() - content.keys()
        if missing:
            raise ExportError(f"{path}: lacks {', '.join(sorted(missing))}")
        _check_types(path, "", content, types)
        if content["kind"] not in CONFIGS:
            raise ExportError(
                f"{path}: kind={content['kind']!r}; allowed: {', '.join(CONFIGS)}"
            )
        _check_special_tokens(path, content)
        read = {
            "config": _read_config(
                path, "config.", CONFIGS[content["kind"]], content["config"]
            ),
            "files": files,
            "format_version": version,
        }
        if content["kind"] == CLASSIFIER:
            read["head"] = _read_config(path, "head.", HeadConfig, content["head"])
            _check_labels(path, read["head"], content["labels"])
        return cls(**(content | read))


def is_weights(name: str) -> bool:
    """Whether a file has weights, or is the index of such files."""
    return name in (WEIGHTS, WEIGHTS_INDEX) or SHARD.fullmatch(name) is not None


def belongs(name: str) -> bool:
    """Whether a file of this name is one of an export, beside config.json."""
    return name in FILES or is_weights(name)


def read_section(folder: Path) -> dict[str, Any]:
    """The section of a folder's config.json; all of it in the flat format.

    Raises:
        ExportError: it is missing, or no export's.
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
    if isinstance(content, dict) and isinstance(content.get(FORMAT), dict):
        return content[FORMAT]
    if isinstance(content, dict) and content.get("format") == FORMAT:
        del content["format"]
        return content
    raise ExportError(f"{path}: no export of this package; allowed: {FORMAT!r}")


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and saved buffers by name, each once: tied ones under the first."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor))
    return dict(found.values())


def _check_special_tokens(path: Path | str, content: dict[str, Any]) -> None:
    special, rows = content["special_tokens"], content["vocab_size"]
    needed = {"bos", "pad", "eos", "unk"}
    if not needed <= special.keys():
        raise ExportError(f"{path}: special_tokens lack bos, pad, eos or unk")
    if rows < 1:
        raise ExportError(f"{path}: vocab_size={rows}; allowed: at least 1")
    tokens = {f"special_tokens.{name}": token for name, token in special.items()}
    for name, token in [*tokens.items(), ("start_token", content["start_token"])]:
        if type(token) is not int or not 0 <= token < rows:
            raise ExportError(
                f"{path}: {name}={token!r}; allowed: 0 to {rows - 1}, a whole number "
                "below vocab_size"
            )
    by_token: dict[int, str] = {}
    for name, token in special.items():
        if by_token.setdefault(token, name) != name:
            raise ExportError(
                f"{path}: special_tokens.{name}={token!r}, as {by_token[token]}; "
                "allowed: a number of its own for each"
            )


def _check_labels(path: Path | str, head: HeadConfig, labels: list[Any]) -> None:
    if not all(isinstance(each, str) for each in labels):
        raise ExportError(f"{path}: labels={repr(labels)[:80]}; allowed: texts")
    if len(labels) not in (0, head.outputs):
        raise ExportError(
            f"{path}: {len(labels)} labels; allowed: head.outputs={head.outputs}"
        )


def _read_config(
    path: Path | str, prefix: str, config: type[ConfigT], values: dict[str, Any]
) -> ConfigT:
    kinds: dict[str, Any] = {each.name: each.type for each in fields(config)}
    types: dict[str, type] = {
        name: str if issubclass(kind, Choice) else kind for name, kind in kinds.items()
    }
    _check_types(path, prefix, values, types)
    # of other fields that are not there, the default is what models did before
    fill_in(values, types)
    try:
        return config(**values)
    except ValueError as error:
        raise ExportError(f"{path}: {prefix}{error}") from error


def _check_types(
    path: Path | str, prefix: str, values: dict[str, Any], types: dict[str, type]
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
