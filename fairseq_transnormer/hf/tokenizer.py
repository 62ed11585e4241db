"""The dictionary and the subword units of a training as a tokenizer of transformers.

It divides text as the training data, into subwords of sentencepiece or GPT-2, or words.
With subwords ``<mask>`` is the only special token that it finds in a text.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizer

from ..checkpoints.load import check_vocabulary, read_manifest, units_among
from ..checkpoints.manifest import CAUSAL, MANIFEST
from ..checkpoints.safe_loading import CheckpointError
from ..checkpoints.saving import save_whole
from ..checkpoints.vocabulary import Vocabulary
from ..data.subword_files import DICTIONARY, GPT2_UNITS, SENTENCEPIECE_MODEL, UNK
from ..data.texts import one_line_text
from ..data.whole_files import write_json


class TransNormerTokenizer(PreTrainedTokenizer):
    """Text to tokens of an exported model and back.

    Tokens without a start token continue a text: their text begins with the space that
    separates both. Causal models get ``start text``, bidirectional ones
    ``<s> text </s>`` or ``<s> text </s> </s> pair </s>``.

    Args:
        vocab_size: entries of the model.
        dictionary_file: dict.txt.
        sentencepiece_file: the model that makes the dictionary's subwords.
        gpt2_encoder_file, gpt2_merges_file: encoder.json and vocab.bpe of GPT-2.
        mask_token: in place of a hidden symbol.
        add_bos_token: put the start token before a text.
        breaks_as_spaces: read each tab and line break as a space, as in the texts of a
            fine-tuning.
        kwargs: of transformers; a ``cls_token`` marks a bidirectional model.

    Raises:
        CheckpointError: a file is missing, or has another number of entries than the
            model.
    """

    vocab_files_names = {
        "dictionary_file": DICTIONARY,
        "sentencepiece_file": SENTENCEPIECE_MODEL,
        "gpt2_encoder_file": GPT2_UNITS[0],
        "gpt2_merges_file": GPT2_UNITS[1],
    }
    model_input_names = ["input_ids", "attention_mask"]

    def __init__(
        self,
        vocab_size: int,
        dictionary_file: str | None = None,
        sentencepiece_file: str | None = None,
        gpt2_encoder_file: str | None = None,
        gpt2_merges_file: str | None = None,
        mask_token: str | None = None,
        add_bos_token: bool = True,
        breaks_as_spaces: bool = False,
        **kwargs,
    ):
        if dictionary_file is None:
            where = kwargs.get("name_or_path") or "the tokenizer's folder"
            raise CheckpointError(
                f"{where}: no {DICTIONARY}; allowed: an export with a dictionary "
                "(--data of python -m fairseq_transnormer export)"
            )
        self.files = {
            DICTIONARY: dictionary_file,
            SENTENCEPIECE_MODEL: sentencepiece_file,
            GPT2_UNITS[0]: gpt2_encoder_file,
            GPT2_UNITS[1]: gpt2_merges_file,
        }
        found = {name: Path(file) for name, file in self.files.items() if file}
        units = units_among(found)
        self.vocabulary = Vocabulary.read(
            found[DICTIONARY], units, vocab_size, mask_token is not None
        )
        self.add_bos_token = add_bos_token
        self.breaks_as_spaces = breaks_as_spaces
        super().__init__(
            vocab_size=vocab_size,
            mask_token=mask_token,
            breaks_as_spaces=breaks_as_spaces,
            **kwargs,
        )

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs):
        """transformers' method, for complete folders only.

        Raises:
            CheckpointError: a file of a local folder is missing, truncated or changed.
        """
        folder = Path(pretrained_model_name_or_path, kwargs.get("subfolder") or "")
        manifest = None
        if (folder / MANIFEST).is_file():
            manifest = read_manifest(folder, cls.vocab_files_names.values())
        found = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        if manifest is not None:
            check_vocabulary(manifest, found.vocabulary, folder)
            own = manifest.kind == CAUSAL, manifest.vocab_size
            if own != (found.cls_token is None, found.vocab_size):
                raise CheckpointError(
                    f"{folder}: its tokenizer is of another kind of model; allowed: "
                    "that of its export"
                )
        return found

    def save_pretrained(self, save_directory, *args, **kwargs) -> tuple[str, ...]:
        """transformers' method; in an export the files then belong to it.

        Raises:
            CheckpointError: the files cannot be written.
        """
        folder, save = Path(save_directory), super().save_pretrained
        written = save_whole(folder, lambda path: save(path, *args, **kwargs))
        return tuple(str(folder / Path(each).name) for each in written)

    @property
    def vocab_size(self) -> int:
        """Entries of the dictionary."""
        return len(self.vocabulary.symbols)

    def get_vocab(self) -> dict[str, int]:
        """Number of each symbol."""
        return dict(self.vocabulary.numbers)

    def tokenize(self, text: str, **kwargs) -> list[str]:
        """The symbols of a text, including those that the dictionary lacks."""
        if self.cls_token is None:
            return self.vocabulary.split(text)
        # as in the data of encoders
        mask = self.mask_token
        text = one_line_text(text) if self.breaks_as_spaces else text.strip()
        first, *others = text.split(mask) if mask else [text]
        symbols = self.vocabulary.split(first.rstrip())
        for span in others:
            symbols += [mask, *self.vocabulary.split(span.rstrip())]
        return symbols

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """The text of symbols."""
        return self.vocabulary.join(tokens)

    def build_inputs_with_special_tokens(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """A text, or a pair of texts, with special tokens."""
        start = [self.bos_token_id] * self.add_bos_token
        if self.cls_token is None:
            return [*start, *token_ids_0, *(token_ids_1 or [])]
        end = [self.eos_token_id]
        if token_ids_1 is None:
            return [*start, *token_ids_0, *end]
        return [*start, *token_ids_0, *end, *end, *token_ids_1, *end]

    def get_special_tokens_mask(
        self,
        token_ids_0: list[int],
        token_ids_1: list[int] | None = None,
        already_has_special_tokens: bool = False,
    ) -> list[int]:
        """1 at special tokens."""
        if not already_has_special_tokens:
            token_ids_0 = self.build_inputs_with_special_tokens(
                token_ids_0, token_ids_1
            )
        special = set(self.all_special_ids) - {self.unk_token_id}
        return [int(token in special) for token in token_ids_0]

    def save_vocabulary(
        self, save_directory: str, filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Copy the files."""
        written = []
        for name, source in self.files.items():
            if source is None:
                continue
            target = os.path.join(save_directory, name)
            if not (os.path.exists(target) and os.path.samefile(source, target)):
                shutil.copyfile(source, target)
            written.append(target)
        return tuple(written)

    def _save_pretrained(self, *args, file_names, **kwargs) -> tuple[str, ...]:
        # transformers drops this field, which its fast tokenizers have elsewhere
        file = Path(file_names[0])
        content = json.loads(file.read_text(encoding="utf-8"))
        write_json(file, content | {"add_bos_token": self.add_bos_token}, indent=2)
        return super()._save_pretrained(*args, file_names=file_names, **kwargs)

    def _encode_plus(self, *args, **kwargs):
        if kwargs.get("is_split_into_words") and self.vocabulary.has_gpt2_units:
            # the space before a word belongs to its first unit
            raise ValueError(
                "is_split_into_words=True; allowed with units of GPT-2: False, the "
                "words joined by spaces"
            )
        return super()._encode_plus(*args, **kwargs)

    def _convert_token_to_id(self, token: str) -> int:
        return self.vocabulary.numbers.get(token, UNK)

    def _convert_id_to_token(self, index: int) -> str:
        return self.vocabulary.symbol(index)

    def _add_tokens(
        self, new_tokens: Iterable[Any], special_tokens: bool = False
    ) -> int:
        unknown = [
            str(token)
            for token in new_tokens
            if str(token) not in self.vocabulary.numbers
        ]
        if unknown:
            raise ValueError(
                f"{unknown}: not in the dictionary; allowed: its {self.vocab_size} "
                "entries, which are all that the model has"
            )
        return super()._add_tokens(new_tokens, special_tokens)

    def _decode(
        self, token_ids: int | list[int], skip_special_tokens: bool = False, **kwargs
    ) -> str:
        pad, start = self.pad_token_id, self.bos_token_id
        tokens = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        first = next((token for token in tokens if token != pad), start)
        # unknown and masked places are visible, as in fairseq's texts
        hidden = set(range(UNK)) if skip_special_tokens else set()
        return self.vocabulary.join(
            [self.vocabulary.symbol(token) for token in tokens if token not in hidden],
            continues=first != start,
        )
