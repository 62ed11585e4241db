"""The causal language model (the paper's ALM) for transformers.

Letters: B batch, N length, P columns that the cache has read, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import GenerationConfig
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import slice_logits_to_keep
from transformers.utils import can_return_tuple
from transformers.utils.deprecation import deprecate_kwarg

from ..checkpoints.export import generation_settings
from ..checkpoints.load import TrainedModel
from ..checkpoints.manifest import CAUSAL
from ..modules.cpu_decoding import lay_out_for_decoding
from .cache import TransNormerCache
from .configuration import TransNormerConfig
from .pretrained import TransNormerPreTrainedModel
from .tokenizer import TransNormerTokenizer

# the earlier name, which transformers' own models accept until that version
accepts_past_key_values = deprecate_kwarg("past_key_values", "5.40.0", "cache")


class TransNormerForCausalLM(TransNormerPreTrainedModel, GenerationMixin):
    """``CausalLanguageModel`` with ``generate`` and a loss.

    Pads may be at any places; positions count tokens. A token ``pad_token_id`` is a pad
    for any mask.

    Args:
        config: of a causal model.
    """

    kinds = (CAUSAL,)
    # the loss counts the targets of all accumulated batches
    accepts_loss_kwargs = True

    def __init__(self, config: TransNormerConfig):
        super().__init__(config)
        self.post_init()
        self._set_generation_config()

    @classmethod
    def of(
        cls, trained: TrainedModel, for_decoding: bool = False
    ) -> TransNormerForCausalLM:
        """Wrap a loaded model, without a copy of its weights.

        for_decoding: rearrange its weights for decoding on a CPU; see ``cpu_decoding``.
        """
        config = TransNormerConfig(fairseq_transnormer=trained.manifest.content())
        with torch.device("meta"):
            model = cls(config)
        model.model = trained.model
        if for_decoding and trained.device.type == "cpu":
            lay_out_for_decoding(model.model)
        return model.eval()

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        """See ``TransNormerPreTrainedModel``."""
        found = super().from_pretrained(*args, **kwargs)
        model = found[0] if isinstance(found, tuple) else found
        # without generation_config.json texts would have no end
        if model.generation_config.eos_token_id is None:
            model._set_generation_config()
        return found

    @accepts_past_key_values
    def generate(self, *args, **kwargs):
        """transformers' method.

        Raises:
            ValueError: ``stop_strings`` with a dictionary of words, since transformers
                matches parts of words; a ``cache`` that has read the whole prompt,
                since one token of it must be left.
        """
        tokenizer = kwargs.get("tokenizer")
        given = args[1] if len(args) > 1 else kwargs.get("generation_config")
        settings = given or self.generation_config
        stops = kwargs.get("stop_strings") or settings.stop_strings
        of_words = (
            isinstance(tokenizer, TransNormerTokenizer)
            and not tokenizer.vocabulary.units
        )
        if stops and of_words:
            raise ValueError(
                f"stop_strings={stops!r}; allowed with a dictionary of words: none; "
                "eos_token_id takes the numbers of words"
            )
        past = kwargs.get("cache")
        prompt = args[0] if args else kwargs.get("inputs", kwargs.get("input_ids"))
        if isinstance(past, TransNormerCache) and prompt is not None:
            seen, length = past.get_seq_length(), prompt.shape[1]
            if seen >= length:
                raise ValueError(
                    f"cache has read {seen} tokens of a prompt of {length}; allowed: "
                    f"at most {length - 1}, the beginning of the prompt"
                )
        return super().generate(*args, **kwargs)

    def _set_generation_config(self) -> None:
        settings = generation_settings(self.config.manifest)
        self.generation_config = GenerationConfig(**settings)

    @accepts_past_key_values
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cache: TransNormerCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        inputs_embeds: Tensor | None = None,
        **others,
    ) -> CausalLMOutputWithPast | tuple:
        """Logits of the next token at each position.

        Args:
            input_ids: int64 (B, N).
            attention_mask: (B, P + N) or (B, N), 0 at pads; its first P columns must be
                those that the cache has read.
            cache: result of an earlier call; it is changed.
            labels: int64 (B, N), the tokens themselves, -100 for those that do not
                count; the loss is that of the next token.
            use_cache: return a cache; by default in evaluation mode, if the
                configuration has it.
            output_hidden_states: return the embedding and each layer's output, the last
                after the final norm.
            logits_to_keep: number of last positions, or positions, whose logits are
                returned; 0: all.
            num_items_in_batch: divisor of the sum of the losses.
            inputs_embeds: (B, N, C), in place of input_ids.
            others: inputs of other models, each without a value.

        Returns:
            logits (B, N, V), or (B, logits_to_keep, V); loss, cache and
            hidden_states on request.

        Raises:
            ValueError: an input differs from this description.
        """
        if cache is not None and not isinstance(cache, TransNormerCache):
            raise ValueError(f"cache={type(cache).__name__}; allowed: TransNormerCache")
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training
        use_cache = use_cache or cache is not None
        states = None if cache is None else cache.states
        past = 0 if cache is None else cache.get_seq_length()
        tokens = self._tokens(input_ids, attention_mask, inputs_embeds, others, past)
        length, pad = tokens.shape[1], self.config.pad_token_id
        if states is not None and attention_mask is not None:
            check_read(attention_mask[:, :-length], states[0].length)
        may_end = torch.compiler.is_compiling() or tokens.eq(pad).any()
        if states is not None and length == 1 and may_end:
            # a single column after states would be read as tokens, including pads
            tokens = F.pad(tokens, (0, 1), value=pad)
            if inputs_embeds is not None:
                inputs_embeds = F.pad(inputs_embeds, (0, 0, 0, 1))
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        hidden_states = [] if output_hidden_states else None
        x, states = self.model.features(
            tokens,
            states,
            return_states=use_cache,
            hidden_states=hidden_states,
            embedded=inputs_embeds,
        )
        if states is not None:
            if cache is None:
                cache = TransNormerCache(len(states))
            cache.put(states, length)
        if hidden_states is not None:
            hidden_states = tuple(h[:, :length] for h in (*hidden_states[:-1], x))
        logits = self.model.output(slice_logits_to_keep(x[:, :length], logits_to_keep))
        loss = None
        if labels is not None:
            # a pad before a token does not predict it
            after_pads = tokens[:, : length - 1].eq(self.config.pad_token_id)
            labels = labels.clone()
            labels[:, 1:][after_pads] = -100
            loss = self.loss_function(
                logits,
                labels,
                vocab_size=self.config.vocab_size,
                num_items_in_batch=num_items_in_batch,
            )
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            cache=cache,
            hidden_states=hidden_states,
        )

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        next_sequence_length: int | None = None,
        cache: TransNormerCache | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        is_first_iteration: bool = False,
        **kwargs,
    ) -> dict:
        """The inputs of ``forward`` for the next tokens of a text."""
        # from generate, for stop_strings
        kwargs.pop("tokenizer", None)
        inputs = super().prepare_inputs_for_generation(
            input_ids,
            next_sequence_length=next_sequence_length,
            cache=cache,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            is_first_iteration=is_first_iteration,
            **kwargs,
        )
        # transformers' mask has ones after a row's end, where the tokens are pads
        if next_sequence_length == 1 and not is_first_iteration:
            inputs.pop("attention_mask", None)
        return inputs

    def _prepare_cache_for_generation(
        self, generation_config, model_kwargs: dict, *args, **kwargs
    ) -> None:
        kind = generation_config.cache_implementation
        if kind not in (None, "dynamic"):
            raise ValueError(
                f"cache_implementation={kind!r}; allowed: none, since the states of "
                "the layers are the cache"
            )
        given = model_kwargs.get("cache")
        if given is not None:
            given._is_user_defined = True
        elif generation_config.use_cache is not False:
            layers = self.config.num_hidden_layers
            model_kwargs["cache"] = TransNormerCache(layers)


def check_read(attention_mask: Tensor, length: Tensor) -> None:
    """Raise ValueError if a mask has fewer tokens than a cache has read.

    It may have more: after a row's end transformers' guidance marks pads, too.

    attention_mask: (B, P), or (B, 0) if unknown. length: int64 (B,).
    """
    if attention_mask.shape[1] and not torch.compiler.is_compiling():
        tokens = attention_mask.ne(0).sum(1)
        if (tokens < length).any():
            raise ValueError(
                f"attention_mask has {tokens.tolist()} tokens in the columns that "
                f"cache has read; allowed: at least {length.tolist()}, those read"
            )
