"""The description of a trained model, and config.json of an exported one.

transformers reads the same file: its fields are on top. The description is in the
section ``fairseq_transnormer``.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..data.subword_files import DICTIONARY, GPT2_UNITS, SENTENCEPIECE_MODEL
from ..data.whole_files import write_text
from ..modules import (
    CausalLanguageModel,
    EncoderConfig,
    LanguageModelConfig,
    MaskedLanguageModel,
)
from ..modules.encoder_classifier import (
    ClassificationHead,
    EncoderClassifier,
    HeadConfig,
)
from .added_fields import fill_in
from .safe_loading import CheckpointError, error_line

# the name of the section and, as model_type, of transformers
FORMAT = "fairseq_transnormer"
VERSION = 2
# prefix of a language model's tensors; transformers' classes have a ``model``
PREFIX = "model."
MANIFEST, WEIGHTS = "config.json", "model.safetensors"
WEIGHTS_INDEX = f"{WEIGHTS}.index.json"
# names of transformers' files for split weights
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
FILES = (WEIGHTS, DICTIONARY, SENTENCEPIECE_MODEL, *GPT2_UNITS)
CAUSAL, BIDIRECTIONAL, CLASSIFIER = "causal", "bidirectional", "classifier"
CONFIGS: dict[str, type[LanguageModelConfig] | type[EncoderConfig]] = {
    CAUSAL: LanguageModelConfig,
    BIDIRECTIONAL: EncoderConfig,
    CLASSIFIER: EncoderConfig,
}
# kind -> class of transformers
ARCHITECTURES = {
    CAUSAL: "TransNormerForCausalLM",
    BIDIRECTIONAL: "TransNormerForMaskedLM",
    CLASSIFIER: "TransNormerForSequenceClassification",
}
PlainModel = CausalLanguageModel | MaskedLanguageModel | EncoderClassifier


@dataclass(frozen=True)
class Manifest:
    """The description of a trained model.

    Attributes:
        architecture: fairseq's name of the model, for people.
        kind: a key of ``CONFIGS``.
        vocab_size: rows of the embedding.
        special_tokens: numbers of bos, pad, eos, unk and, if it exists, mask.
        start_token: precedes a text.
        config: of the model.
        files: name -> SHA-256 of each other file of an exported folder.
        head: of a classifier.
        labels: of a classifier, by the numbers of its outputs; none if unknown.
        sequence_length: maximum tokens of a training sequence; None if unknown.
        texts: per example of a classifier, 1 or 2; None if unknown.
        positive_class: of a classifier, the class of its F1.
        dictionary_sha256, units_sha256: of the dictionary's symbols, and of its subword
            files by name; None if they were missing.
        replaced: names of the files of an earlier save that this one removes.
    """

    architecture: str
    kind: str
    vocab_size: int
    special_tokens: dict[str, int]
    start_token: int
    config: LanguageModelConfig | EncoderConfig
    files: dict[str, str] = field(default_factory=dict)
    head: HeadConfig | None = None
    labels: list[str] = field(default_factory=list)
    sequence_length: int | None = None
    texts: int | None = None
    positive_class: int = 1
    dictionary_sha256: str | None = None
    units_sha256: dict[str, str] | None = None
    replaced: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        special, rows = self.special_tokens, self.vocab_size
        if not {"bos", "pad", "eos", "unk"} <= special.keys():
            raise ValueError("special_tokens lack bos, pad, eos or unk")
        tokens = [*special.values(), self.start_token]
        if len({*special.values()}) < len(special) or not all(
            type(token) is int and 0 <= token < rows for token in tokens
        ):
            raise ValueError(
                f"special_tokens={special}, start_token={self.start_token}; allowed: "
                f"different whole numbers below vocab_size={rows}"
            )
        length = self.sequence_length
        if length is not None and (type(length) is not int or length < 1):
            raise ValueError(f"sequence_length={length!r}; allowed: 1 or more")
        if (self.kind == CLASSIFIER) != (self.head is not None):
            raise ValueError(f"kind={self.kind!r}; allowed: {CLASSIFIER!r} with a head")
        if not all(isinstance(label, str) for label in self.labels):
            raise ValueError(f"labels={self.labels!r:.80}; allowed: texts")
        if self.head and len(self.labels) not in (0, self.head.outputs):
            raise ValueError(
                f"{len(self.labels)} labels; allowed: head.outputs={self.head.outputs}"
            )

    def build(self) -> PlainModel:
        """The model with fresh weights, on torch's default device.

        Raises:
            CheckpointError: values of the configuration do not fit together.
        """
        model = self.build_language_model()
        if isinstance(model, MaskedLanguageModel) and self.head is not None:
            try:
                head = ClassificationHead(self.head, self.config.embed_dim)
                return EncoderClassifier(model, head)
            except (RuntimeError, TypeError, OverflowError) as error:
                raise CheckpointError(f"head: {error_line(error)}") from error
        return model

    def build_language_model(self) -> CausalLanguageModel | MaskedLanguageModel:
        """``build`` of a classifier without its head."""
        rows, pad = self.vocab_size, self.special_tokens["pad"]
        try:
            if isinstance(self.config, LanguageModelConfig):
                return CausalLanguageModel(self.config, rows, pad)
            return MaskedLanguageModel(self.config, rows, pad)
        # torch's errors for sizes whose product exceeds 64 bits
        except (ValueError, RuntimeError, TypeError, OverflowError) as error:
            reason = str(error).partition("\n")[0]
            raise CheckpointError(f"config: {reason}") from error

    def tensors(self, model: nn.Module) -> dict[str, Tensor]:
        """Parameters and saved buffers of the result of ``build``, by names in a file.

        Each is there once: tied ones under the first name.
        """
        found: dict[int, tuple[str, Tensor]] = {}
        prefix = "" if self.kind == CLASSIFIER else PREFIX
        for name, tensor in model.state_dict(keep_vars=True).items():
            found.setdefault(id(tensor), (f"{prefix}{name}", tensor))
        return dict(found.values())

    def content(self) -> dict[str, Any]:
        """The content of the section of config.json, without the files."""
        content = asdict(self) | {"format_version": VERSION}
        del content["files"], content["replaced"]
        if self.kind != CLASSIFIER:
            for name in ("head", "labels", "texts", "positive_class"):
                del content[name]
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
    def read(cls, folder: Path) -> tuple[Manifest, str]:
        """The manifest in config.json, and that file's SHA-256.

        Raises:
            CheckpointError: it is missing, or not one of this format and version.
        """
        path = folder / MANIFEST
        try:
            raw = path.read_bytes()
            content = json.loads(raw)
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{path}: missing or damaged ({error})") from error
        is_ours = isinstance(content, dict) and FORMAT in (
            *content,
            content.get("format"),  # version 1, which had no section
        )
        if not is_ours:
            raise CheckpointError(f"{path}: not a model of this package ({FORMAT!r})")
        content = content.get(FORMAT, content)
        files = content.get("files") if isinstance(content, dict) else None
        if not isinstance(files, dict) or not all(map(belongs, files)):
            raise CheckpointError(
                f"{path}: files={repr(files)[:80]}; allowed: {', '.join(FILES)}, each "
                "with its SHA-256"
            )
        return cls.of_content(content, path), hashlib.sha256(raw).hexdigest()

    @classmethod
    def of_content(cls, content: dict[str, Any], path: Path | str) -> Manifest:
        """The manifest in the section of config.json.

        Args:
            content: of the section, with or without the files.
            path: of config.json, for messages.

        Raises:
            CheckpointError: a value is not allowed, or it is of another version.
        """
        values = dict(content)
        if values.pop("format_version", None) != VERSION:
            raise CheckpointError(
                f"{path}: format_version={content.get('format_version')!r}; allowed: "
                f"{VERSION}. Export the checkpoint again (python -m "
                "fairseq_transnormer export)"
            )
        try:
            kind = CONFIGS[values["kind"]]
            config = dict(values["config"])
            # the defaults of other missing fields are what older models computed
            fill_in(config, {each.name for each in fields(kind)})
            values["config"] = kind(**config)
            if values.get("head") is not None:
                values["head"] = HeadConfig(**values["head"])
            return cls(**values)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{path}: {error}") from error


def is_weights(name: str) -> bool:
    """Whether a file has weights, or is the index of such files."""
    return name in (WEIGHTS, WEIGHTS_INDEX) or SHARD.fullmatch(name) is not None


def belongs(name: str) -> bool:
    """Whether a file of this name is one of an exported folder, besides config.json."""
    return name in FILES or is_weights(name)
