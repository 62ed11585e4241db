"""The manifest of an export as a configuration of transformers."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from ..checkpoints.manifest import (
    BIDIRECTIONAL,
    CAUSAL,
    CLASSIFIER,
    FORMAT,
    MANIFEST,
    Manifest,
)
from ..checkpoints.safe_loading import CheckpointError
from ..checkpoints.saving import save_whole
from ..data.subword_files import MASK, SPECIAL
from ..modules import EncoderConfig, LanguageModelConfig, parse_attention_types
from ..modules.encoder_classifier import HeadConfig


class TransNormerConfig(PretrainedConfig):
    """The section ``fairseq_transnormer`` of config.json, with transformers' fields.

    The fields of the model's configuration are attributes, too (``embed_dim``,
    ``dropout``, ``attention_types``, ...). So ``from_pretrained(folder, dropout=0.2)``
    changes one.

    Args:
        fairseq_transnormer: the section; ``of`` makes one for a new model.

    Raises:
        CheckpointError: a value is not allowed.
    """

    model_type = FORMAT
    # a list, to which Trainer adds another
    keys_to_ignore_at_inference = ["cache"]

    fairseq_transnormer: dict[str, Any] | None = None
    use_cache: bool = True

    def __post_init__(self, **kwargs):
        section = self.fairseq_transnormer
        if not isinstance(section, dict):
            raise CheckpointError(
                f"{MANIFEST}: {FORMAT}={section!r}; allowed: what "
                "python -m fairseq_transnormer export writes, or TransNormerConfig.of"
            )
        section = copy.deepcopy(section)
        # those of the folder that it was read from
        section.pop("files", None)
        section.pop("replaced", None)
        self.fairseq_transnormer = section
        manifest = self.manifest
        if manifest.kind == CLASSIFIER:
            labels = manifest.labels or [
                f"LABEL_{i}" for i in range(manifest.head.outputs)
            ]
            # another number of labels is another problem
            count = kwargs.get("num_labels") or len(self.id2label or labels)
            is_same = count == len(labels)
            if self.id2label is None and is_same:
                self.id2label = dict(enumerate(labels))
                self.label2id = {label: i for i, label in enumerate(labels)}
            if manifest.head.regression and is_same and self.problem_type is None:
                self.problem_type = "regression"
            elif self.problem_type == "regression" and not is_same:
                self.problem_type = None
        own = {
            name: kwargs.pop(name) for name in [*kwargs] if name in section["config"]
        }
        super().__post_init__(**kwargs)
        for name, value in own.items():
            setattr(self, name, value)

    @classmethod
    def of(
        cls, config: LanguageModelConfig | EncoderConfig, vocab_size: int, **kwargs
    ) -> TransNormerConfig:
        """The configuration of a new model.

        Args:
            config: of the plain model, e.g. ``LanguageModelT2Config()``.
            vocab_size: entries of the vocabulary, with fairseq's special ones at 0 to
                3 and, for an encoder, ``<mask>`` at its end.
            kwargs: of transformers.

        Raises:
            CheckpointError: a value is not allowed.
        """
        if not isinstance(config, (LanguageModelConfig, EncoderConfig)):
            raise CheckpointError(
                f"config={type(config).__name__}; allowed: LanguageModelConfig, "
                "EncoderConfig and what is derived from them"
            )
        kind = CAUSAL if isinstance(config, LanguageModelConfig) else BIDIRECTIONAL
        special = {name: i for i, name in enumerate(("bos", "pad", "eos", "unk"))}
        if kind != CAUSAL:
            special[MASK.strip("<>")] = vocab_size - 1
        manifest = Manifest(
            architecture=FORMAT,
            kind=kind,
            vocab_size=vocab_size,
            special_tokens=special,
            start_token=SPECIAL.index("</s>" if kind == CAUSAL else "<s>"),
            config=config,
        )
        return cls(fairseq_transnormer=manifest.content(), **kwargs)

    @property
    def manifest(self) -> Manifest:
        """The manifest in the section, without files.

        Raises:
            CheckpointError: a value is not allowed.
        """
        return Manifest.of_content(self.fairseq_transnormer, MANIFEST)

    def save_pretrained(self, save_directory, *args, **kwargs) -> None:
        """transformers' method; an export stays one."""
        save, folder = super().save_pretrained, Path(save_directory)
        if (folder / MANIFEST).is_file():
            save_whole(folder, lambda path: save(path, *args, **kwargs))
        else:
            save(save_directory, *args, **kwargs)

    def set_head(self, head: HeadConfig, labels: list[str]) -> None:
        """Make this the configuration of a classifier."""
        manifest = self.manifest
        if manifest.kind == BIDIRECTIONAL:  # its length is the pre-training's
            manifest = replace(manifest, sequence_length=self.max_positions)
        changed = replace(manifest, kind=CLASSIFIER, head=head, labels=labels)
        self.fairseq_transnormer = changed.content()

    def without_head(self) -> TransNormerConfig:
        """This configuration; for a classifier a copy for its encoder only."""
        if self.manifest.kind != CLASSIFIER:
            return self
        found = copy.deepcopy(self)
        changed = replace(self.manifest, kind=BIDIRECTIONAL, head=None, labels=[])
        found.fairseq_transnormer = changed.content()
        # transformers' own number of labels, without names
        found.num_labels, found.problem_type = 2, None
        return found

    def default_head(self) -> HeadConfig:
        """A head for ``num_labels``, for an encoder that has none."""
        return HeadConfig(
            outputs=self.num_labels,
            inner_dim=self.embed_dim,
            # as transformers' loss takes it
            regression=self.problem_type == "regression"
            or (self.problem_type is None and self.num_labels == 1),
        )

    @property
    def vocab_size(self) -> int:
        """Entries of the vocabulary."""
        return self.fairseq_transnormer["vocab_size"]

    @property
    def hidden_size(self) -> int:
        """Width of the model."""
        return self.embed_dim

    @property
    def num_attention_heads(self) -> int:
        """Heads of an attention."""
        return self.num_heads

    @property
    def num_hidden_layers(self) -> int:
        """Layers."""
        return len(parse_attention_types(self.attention_types))

    @property
    def tie_word_embeddings(self) -> bool:
        """Whether the output layer shares the matrix of the embedding."""
        return not self.untie_output_embedding

    @property
    def bos_token_id(self) -> int:
        """The token before a text."""
        return self.fairseq_transnormer["start_token"]

    @property
    def pad_token_id(self) -> int:
        """The token for padding."""
        return self.fairseq_transnormer["special_tokens"]["pad"]

    @property
    def eos_token_id(self) -> int:
        """The token that ends a text."""
        return self.fairseq_transnormer["special_tokens"]["eos"]

    def __getattr__(self, name: str) -> Any:
        values = _own_values(self)
        if name in values:
            return values[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        values = _own_values(self)
        follows = getattr(type(self), name, None)
        if isinstance(follows, property) and follows.fset is None:
            if value != getattr(self, name):
                raise CheckpointError(
                    f"config.{name}={value!r}; allowed: {getattr(self, name)!r}, which "
                    f"follows from the section {FORMAT}"
                )
            return None
        if name not in values:
            return super().__setattr__(name, value)
        section = self.fairseq_transnormer | {"config": values | {name: value}}
        manifest = Manifest.of_content(section, MANIFEST)
        super().__setattr__(FORMAT, manifest.content())


def _own_values(config: TransNormerConfig) -> dict[str, Any]:
    section = config.__dict__.get(FORMAT)
    values = section.get("config") if isinstance(section, dict) else None
    return values if isinstance(values, dict) else {}
