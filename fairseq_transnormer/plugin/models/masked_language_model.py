"""fairseq's encoders, for its tasks ``masked_lm`` and ``sentence_prediction``."""

import logging
from dataclasses import dataclass
from typing import NamedTuple

from fairseq.models import FairseqEncoder, FairseqEncoderModel
from fairseq.models.roberta.model import RobertaClassificationHead, RobertaModel
from fairseq.tasks.language_modeling import LanguageModelingTask
from torch import nn

from ...modules.config import EncoderConfig
from ...modules.encoder_classifier import Pooling, first_token, mean_over_tokens
from ...modules.masked_language_model import MaskedLanguageModel
from ...modules.options import described, probability
from .variants import VariantConfig, as_dataclass

logger = logging.getLogger(__name__)


@dataclass
class TransNormerEncoderConfig(VariantConfig, EncoderConfig):
    """The fields of ``EncoderConfig``, and those of the classification heads.

    fairseq's ``sentence_prediction`` configures the heads.
    """

    pooler_dropout: float = probability(0.0, "dropout of the classification heads")
    pooler_activation_fn: str = described("tanh", "activation of those")
    pooling: Pooling = described(
        Pooling("first"),
        "what the classification heads see: the features of the first token that is no "
        "pad, or the mean over all of them",
    )
    load_checkpoint_heads: bool = described(
        False, "add the classification heads of a checkpoint", training_only=True
    )


class TransNormerEncoder(FairseqEncoder):
    """``MaskedLanguageModel`` behind fairseq's encoder interface."""

    def __init__(self, config: EncoderConfig, dictionary):
        super().__init__(dictionary)
        self.model = MaskedLanguageModel(config, len(dictionary), dictionary.pad())
        longest = self.model.stack.longest_input
        self._max_positions = min(config.max_positions, longest or config.max_positions)

    def forward(
        self,
        src_tokens,
        features_only=False,
        return_all_hiddens=False,
        masked_tokens=None,
        padding=None,
        **unused,
    ):
        """Encode tokens, int64 (B, N), and predict them; see ``MaskedLanguageModel``.

        Args:
            features_only: leave the masked-LM head out.
            return_all_hiddens: put the embedding and each layer's output, each (N, B,
                embed_dim), into the second result as "inner_states".
            masked_tokens: bool (B, N); if given, only these are predicted.

        Returns:
            features (B, N, embed_dim), or logits (B, N, vocabulary) or (masked,
            vocabulary); and a dict.
        """
        hidden_states = [] if return_all_hiddens else None
        x = self.model.features(src_tokens, hidden_states, padding)
        if not features_only:
            x = self.model.lm_head(x if masked_tokens is None else x[masked_tokens])
        inner_states = [h.transpose(0, 1) for h in hidden_states or ()]
        return x, {"inner_states": inner_states if return_all_hiddens else None}

    def max_positions(self):
        """Longest input that fairseq lets through."""
        return self._max_positions


class TransNormerEncoderModel(FairseqEncoderModel):
    """The paper's BLM: ``MaskedLanguageModel`` as a fairseq encoder model."""

    takes_padding = True  # forward does, see modules.padding
    supported_targets = frozenset({"self"})

    def __init__(self, cfg, encoder: FairseqEncoder):
        super().__init__(encoder)
        self.cfg, self.pooling = cfg, Pooling(cfg.pooling)
        self.classification_heads = nn.ModuleDict()

    @classmethod
    def build_model(cls, cfg, task):
        """Build the model of a configuration for a task with one dictionary."""
        if isinstance(task, LanguageModelingTask):  # an encoder sees its next tokens
            raise ValueError(
                f"model={cfg._name} with task=language_modeling; allowed: with "
                "masked_lm and sentence_prediction; for language_modeling: decoders, "
                "such as transnormer_t2"
            )
        config = as_dataclass(EncoderConfig, cfg)
        return cls(cfg, TransNormerEncoder(config, task.source_dictionary))

    def forward(
        self,
        src_tokens,
        features_only=False,
        return_all_hiddens=False,
        classification_head_name=None,
        targets=None,
        target_positions=None,
        **kwargs,
    ):
        """The results of the encoder, of a classification head, or the loss.

        The loss is that of ``targets`` at ``target_positions``; see
        ``MaskedLanguageModel``.
        """
        has_head = classification_head_name is not None
        x, extra = self.encoder(
            src_tokens,
            features_only or has_head or targets is not None,
            return_all_hiddens,
            **kwargs,
        )
        if targets is not None:
            return self.encoder.model.output_loss(x, targets, target_positions), extra
        if has_head:
            real = src_tokens.ne(self.encoder.dictionary.pad())
            # fairseq's heads take the token at 0, which may be a pad
            is_mean = self.pooling == "mean"
            x = mean_over_tokens(x, real) if is_mean else first_token(x, real)[:, None]
            x = self.classification_heads[classification_head_name](x)
        return x, extra

    def register_classification_head(self, name, num_classes, inner_dim=None, **unused):
        """Add a head, by default as wide as the model, or replace one of that name."""
        if name in self.classification_heads:
            logger.warning("classification head %r is replaced", name)
        self.classification_heads[name] = RobertaClassificationHead(
            input_dim=self.cfg.embed_dim,
            inner_dim=inner_dim or self.cfg.embed_dim,
            num_classes=num_classes,
            activation_fn=self.cfg.pooler_activation_fn,
            pooler_dropout=self.cfg.pooler_dropout,
        )

    # into RoBERTa's hub interface (encode, fill_mask, ...)
    from_pretrained = classmethod(RobertaModel.from_pretrained.__func__)

    def upgrade_state_dict_named(self, state_dict, name):
        """Fit the classification heads of a checkpoint to those of this model.

        Heads that the model lacks are added (``load_checkpoint_heads``) or dropped.
        Heads of other sizes are dropped. Heads that the checkpoint lacks are new.
        """
        super().upgrade_state_dict_named(state_dict, name)
        prefix = ".".join(filter(None, (name, "classification_heads.")))
        stored = [key for key in state_dict if key.startswith(prefix)]
        for head in {key.removeprefix(prefix).partition(".")[0] for key in stored}:
            sizes = HeadSizes.of(state_dict, prefix + head)
            if head not in self.classification_heads and self.cfg.load_checkpoint_heads:
                self.register_classification_head(head, *sizes)
            heads = self.classification_heads
            own = HeadSizes.of(heads.state_dict(), head) if head in heads else "none"
            if sizes != own:
                message = "classification head %r is dropped, of %s; the model's: %s"
                logger.warning(message, head, sizes, own)
                for key in stored:
                    if key.startswith(f"{prefix}{head}."):
                        del state_dict[key]
        for key, value in self.classification_heads.state_dict().items():
            state_dict.setdefault(prefix + key, value)


class HeadSizes(NamedTuple):
    """Sizes of a classification head."""

    num_classes: int
    inner_dim: int

    @classmethod
    def of(cls, weights, head: str):
        """The sizes of the head with this name, from weights."""
        return cls(*(len(weights[f"{head}.{x}.weight"]) for x in ("out_proj", "dense")))
