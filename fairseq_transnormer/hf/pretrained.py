"""The base of the models: loading, saving and checks of inputs.

Letters: B batch, N length, P columns that a cache has read.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..checkpoints.load import check_finite, read_manifest, read_weights
from ..checkpoints.manifest import MANIFEST, WEIGHTS, WEIGHTS_INDEX
from ..checkpoints.safe_loading import CheckpointError
from ..checkpoints.saving import save_whole
from .configuration import TransNormerConfig

HEAD = "classifier."


class TransNormerPreTrainedModel(PreTrainedModel):
    """Base of the models; ``model`` is the plain one.

    ``forward`` also takes ``return_dict``: an object (the default) or a tuple.

    Args:
        config: of one of the class's ``kinds``.

    Raises:
        CheckpointError: it is of another kind, or its values do not fit together.
    """

    config_class = TransNormerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    # a state cannot step back, as assisted generation needs
    _is_stateful = True
    _no_split_modules = ["TransNormerLayer"]
    # kinds of manifests, the main one first
    kinds: tuple[str, ...] = ()
    # whether it uses the output layer
    has_output = True

    def __init__(self, config: TransNormerConfig):
        super().__init__(config)
        manifest = config.manifest
        if manifest.kind not in self.kinds:
            raise CheckpointError(
                f"{config.name_or_path or MANIFEST}: kind={manifest.kind!r}, a "
                f"{manifest.architecture}; allowed for {type(self).__name__}: "
                f"{', '.join(self.kinds)}"
            )
        self.model = manifest.build_language_model()
        first: dict[nn.Parameter, str] = {}
        self._tied_weights_keys = {
            name: first[parameter]
            for name, parameter in self.named_parameters(remove_duplicate=False)
            if first.setdefault(parameter, name) != name
        }
        # parameters without a gradient; workers wait for those of all others
        used = "model." if self.has_output else ("model.embed_", "model.stack.")
        self._frozen = [
            name
            for name, parameter in self.named_parameters()
            if not (parameter.requires_grad and name.startswith(used))
        ]
        self._freeze()

    def _freeze(self) -> None:
        for name in self._frozen:
            self.get_parameter(name).requires_grad_(False)

    def _init_weights(self, module) -> None:
        """Nothing: the modules initialise their weights themselves."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs):
        """transformers' method, for complete folders only.

        Raises:
            CheckpointError: a file of a local folder is missing, truncated or changed,
                or the weights do not fit the configuration.
        """
        name = pretrained_model_name_or_path
        if name is not None and (os.path.isdir(name) or _is_path(name)):
            folder = Path(name, kwargs.get("subfolder") or "")
            manifest = read_manifest(folder)
            if (folder / WEIGHTS).is_file() and (folder / WEIGHTS_INDEX).is_file():
                raise CheckpointError(
                    f"{folder}: {WEIGHTS} and {WEIGHTS_INDEX}; allowed: one of "
                    "them, and of shards those that the index names"
                )
            read_weights(manifest, folder)  # which compares them
        wants_report = kwargs.pop("output_loading_info", False)
        model, report = super().from_pretrained(
            name, *args, output_loading_info=True, **kwargs
        )
        # transformers replaces the parameters
        model._freeze()
        check_finite(name, model.named_parameters())
        # a head may be new, or dropped
        missing = _but_head(report["missing_keys"])
        unexpected = _but_head(report["unexpected_keys"])
        if missing or unexpected:
            raise CheckpointError(
                f"{name}: not the weights of {type(model).__name__}: lacks "
                f"{missing or 'none'}, has unknown {unexpected or 'none'}; allowed: "
                "those of its config.json"
            )
        return (model, report) if wants_report else model

    def save_pretrained(
        self, save_directory, is_main_process=True, state_dict=None, **kwargs
    ) -> None:
        """transformers' method; ``checkpoints.load`` reads the folder, too.

        An earlier save in the folder stays valid until the new one is complete.

        Raises:
            CheckpointError: the folder cannot be written.
            ValueError: a ``variant`` is given; exports have none. Tied tensors of
                ``state_dict`` differ.
        """
        if kwargs.get("variant"):
            raise ValueError(
                f"variant={kwargs['variant']!r}; allowed: None; the dtype is that of "
                "the weights, as after model.half()"
            )
        self._before_saving()
        if state_dict is not None:
            state_dict = self._without_tied(state_dict)
        save = functools.partial(
            super().save_pretrained,
            is_main_process=is_main_process,
            state_dict=state_dict,
            **kwargs,
        )
        if self.should_save_on_this_rank(is_main_process):
            save_whole(Path(save_directory), save)
        else:
            save(save_directory)

    def _without_tied(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        # transformers leaves out a second name only if both share memory
        for name, first in self._tied_weights_keys.items():
            if name in tensors and not torch.equal(tensors[name], tensors[first]):
                raise ValueError(f"state_dict: {name} and {first} differ, but are tied")
        return {n: x for n, x in tensors.items() if n not in self._tied_weights_keys}

    def _before_saving(self) -> None:
        """Update the configuration to the model, such as changed labels."""

    def resize_token_embeddings(
        self, new_num_tokens=None, pad_to_multiple_of=None, mean_resizing=True
    ):
        """The embedding, for its present size only.

        Raises:
            ValueError: another size is requested.
        """
        size = self.config.vocab_size
        if new_num_tokens not in (None, size) or size % (pad_to_multiple_of or 1):
            raise ValueError(
                f"new_num_tokens={new_num_tokens}, pad_to_multiple_of="
                f"{pad_to_multiple_of}; allowed: {size}, the entries of the dictionary "
                "that the model was trained with"
            )
        return self.get_input_embeddings()

    def get_expanded_tied_weights_keys(
        self, all_submodels: bool = False
    ) -> dict[str, str]:
        """The first name of each parameter by its other names."""
        return dict(self._tied_weights_keys)

    def get_output_embeddings(self) -> nn.Module | None:
        """The module with the output layer's ``weight``, (vocabulary, width).

        That is the embedding if both are tied; None if the output layer is not used.
        """
        if not self.has_output:
            return None
        own = getattr(self.model, "lm_head", None) or self.model.output_projection
        return own or self.model.embed_tokens

    def _set_gradient_checkpointing(
        self,
        enable: bool = True,
        gradient_checkpointing_func=None,
        every_n_layers: int = 1,
    ) -> None:
        settings = {}
        if isinstance(gradient_checkpointing_func, functools.partial):
            settings = gradient_checkpointing_func.keywords
        if enable and (settings.get("use_reentrant") or every_n_layers != 1):
            raise ValueError(
                f"use_reentrant={settings.get('use_reentrant')}, every_n_layers="
                f"{every_n_layers}; allowed: False, 1: each layer is recomputed"
            )
        self.model.stack.checkpoint_activations = enable

    @property
    def is_activation_checkpointing(self) -> bool:
        """Whether layers are recomputed in the backward pass."""
        return self.model.stack.checkpoint_activations

    def _tokens(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        inputs_embeds: Tensor | None,
        others: dict[str, Any],
        past: int = 0,
    ) -> Tensor:
        """``input_ids`` (B, N) with pads where the mask is 0.

        For embeddings the tokens are arbitrary.

        attention_mask: (B, N) or (B, P + N); the last N columns count.
        others: inputs that the models do not have.

        Raises:
            ValueError: a shape is wrong; another input has a value; or, only on a CPU
                and not during compilation, a token is not in the vocabulary.
        """
        for name, value in others.items():
            if value is not None and value is not False:
                shown = " ".join(repr(value).split())[:80]
                raise ValueError(f"{name}={shown}; allowed: None, no such input")
        if (input_ids is None) == (inputs_embeds is None):
            given = "input_ids=None" if input_ids is None else "input_ids"
            raise ValueError(f"{given} and inputs_embeds; allowed: one of them")
        if inputs_embeds is not None:
            shape = tuple(inputs_embeds.shape)
            if len(shape) != 3 or shape[2] != self.config.hidden_size:
                raise ValueError(
                    f"inputs_embeds has the shape {shape}; allowed: (batch, length, "
                    f"{self.config.hidden_size})"
                )
            input_ids = torch.full(
                shape[:2], self.config.bos_token_id, device=inputs_embeds.device
            )
        is_seen = input_ids.device.type == "cpu" and not torch.compiler.is_compiling()
        if is_seen and input_ids.numel():
            low, high = input_ids.aminmax()
            if low < 0 or high >= self.config.vocab_size:
                token = int(low if low < 0 else high)
                raise ValueError(
                    f"input_ids has {token}; allowed: 0 to "
                    f"{self.config.vocab_size - 1}, the dictionary of the model"
                )
        if attention_mask is None:
            return input_ids
        length = input_ids.shape[1]
        # not a set: torch.export's sizes have no hash
        allowed = [(len(input_ids), length), (len(input_ids), past + length)]
        if tuple(attention_mask.shape) not in allowed:
            raise ValueError(
                f"attention_mask has the shape {tuple(attention_mask.shape)}; allowed: "
                f"{' or '.join(map(str, allowed))}"
            )
        pads = attention_mask[:, attention_mask.shape[1] - length :].eq(0)
        return input_ids.masked_fill(pads, self.config.pad_token_id)

    def _encode(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        inputs_embeds: Tensor | None,
        output_hidden_states: bool | None,
        others: dict[str, Any],
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...] | None]:
        """Tokens (B, N), their features (B, N, C), and each layer's output."""
        tokens = self._tokens(input_ids, attention_mask, inputs_embeds, others)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        hidden_states = [] if output_hidden_states else None
        x = self.model.features(
            tokens, hidden_states=hidden_states, embedded=inputs_embeds
        )
        if isinstance(x, tuple):  # of a causal model, with its state
            x, _ = x
        return tokens, x, hidden_states and (*hidden_states[:-1], x)


def _is_path(name: str | os.PathLike) -> bool:
    """Whether this cannot be the name of a repository."""
    return os.path.isabs(name) or os.fspath(name).startswith(".")


def _but_head(names: Iterable[str]) -> str:
    return ", ".join(sorted(each for each in names if not each.startswith(HEAD))[:20])
