"""Perplexity and bits a byte of what needs no attention."""

from __future__ import annotations

import json
import lzma
import math
from pathlib import Path

import numpy as np

from ..data.binary_data import read_binary_data
from ..data.subword_files import UNK, dictionary_symbols
from ..data.whole_files import write_json
from ..outputs import OutputFile, markdown

# xz looks back no further, and takes a second for a few million bytes
MOST_BYTES = 16 << 20


def baselines(train: np.ndarray, text: np.ndarray, size: int) -> dict[str, float]:
    """Perplexities of ``text`` under frequencies counted in ``train``.

    The unigram is p(b) = (n(b) + 1/2) / (N + size/2); the bigram is drawn to it where
    a token is rare: p(b | a) = (n(a, b) + 5 p(b)) / (n(a) + 5).

    Args:
        train: token ids, (N,).
        text: token ids, (M,); the first one is predicted by neither.
        size: of the dictionary, above every id.

    Returns:
        "unigram" and "bigram", per token.

    Raises:
        ValueError: one of the two has fewer than 2 tokens.
    """
    if min(len(train), len(text)) < 2:
        raise ValueError(f"2 tokens are needed, got {len(train)} and {len(text)}")
    single = (np.bincount(train, minlength=size) + 0.5) / (len(train) + size / 2)
    pairs, counts = np.unique(train[:-1] * size + train[1:], return_counts=True)
    seen = np.bincount(train[:-1], minlength=size)
    before, after = text[:-1], text[1:]
    wanted = before * size + after
    place = np.searchsorted(pairs, wanted).clip(max=len(pairs) - 1)
    found = np.where(pairs[place] == wanted, counts[place], 0)
    pair = (found + 5 * single[after]) / (seen[before] + 5)
    return {
        "unigram": float(np.exp(-np.log(single[after]).mean())),
        "bigram": float(np.exp(-np.log(pair).mean())),
    }


def masked_baseline(
    train: np.ndarray,
    text: np.ndarray,
    size: int,
    leave_unmasked_prob: float = 0.1,
    random_token_prob: float = 0.1,
) -> float:
    """Perplexity of the best rule of a masked model that looks at no other place.

    Of the tokens that fairseq's ``masked_lm`` asks for, a share u is shown as it is. A
    share r is shown as one of K symbols, drawn evenly; the rest as ``<mask>``. Special
    symbols are never drawn. With the unigram of ``baselines``, the rule is p(b) at
    ``<mask>``, and where another v is shown

        P(b | v) = (u p(v) [b = v] + r p(b) / K) / (u p(v) + r / K).

    Which share of all tokens is asked for makes no difference.

    Args:
        train: token ids, (N,).
        text: token ids, (M,); what is expected of all of them.
        size: of the dictionary, without ``<mask>``.
        leave_unmasked_prob: u.
        random_token_prob: r, above 0.

    Returns:
        per token.
    """
    special = 4  # <s>, <pad>, </s>, <unk> are never drawn
    drawn = size - special + 1  # <mask> is, too
    single = (np.bincount(train, minlength=size) + 0.5) / (len(train) + size / 2)
    chance = random_token_prob / drawn
    drawn_as = np.where(np.arange(size) < special, 0, chance)
    shown = leave_unmasked_prob * single + drawn_as
    of_itself = -np.log((leave_unmasked_prob + drawn_as) * single / shown)
    # the sum over all symbols that may be drawn, but for <mask>, in place of a token
    wrong = np.log(shown[special:]).sum() - (drawn - 1) * np.log(chance * single)
    wrong[special:] += of_itself[special:]
    wrong[special:] += np.log(chance * single[special:] / shown[special:])
    masked = 1 - leave_unmasked_prob - random_token_prob + chance
    nats = -masked * np.log(single) + leave_unmasked_prob * of_itself
    return float(np.exp((nats + chance * wrong)[text].mean()))


def frequency_baselines(
    data: Path,
    /,
    split: str = "valid",
    tokens: int | None = None,
    train_tokens: int | None = None,
    text: Path | None = None,
    score: Path | None = None,
    output: OutputFile = None,
) -> None:
    """Perplexity of what needs no attention: the frequency of tokens, and of pairs.

        python -m fairseq_transnormer analyse frequency_baselines DATA --tokens 102400

    A model at the unigram's perplexity looks at nothing; a causal one at the bigram's
    may look at the current token alone. Their order says nothing of their attention.
    "masked" is the best rule for masked models that looks at the masked place alone.

    --text is the folder that `data_prep split_text` made, and that DATA is of. It adds
    bits a byte, with those of `xz -9e`. --score adds a model's figures.

    Args:
        data: folder of binarised text.
        split: that is predicted.
        tokens: the first ones of it; None: all.
        train_tokens: the first ones of train are counted; None: all.
        text: folder with train.txt and the split's text, for bits a byte.
        score: what `score --json` printed for the same text.
        output: JSON file for the figures.
    """
    if tokens is not None and (text or score):
        raise ValueError(
            "--text and --score are of the whole split; allowed: no --tokens"
        )
    size = len(dictionary_symbols(data))
    read = [read_binary_data(data / name) for name in ("train", split)]
    train, whole = (each.ids().astype(np.int64) for each in read)
    train, ids = train[:train_tokens], whole[:tokens]
    found = baselines(train, ids, size)
    found["masked"] = masked_baseline(train, ids, size)
    rows = {name: {"perplexity": value} for name, value in found.items()}
    model, lines = {}, len(read[1].sizes)
    if text is not None:
        del rows["masked"]  # its chances of a text are no chance of the whole
        content = text / f"{split}.txt"
        with content.open("rb") as file:
            if (count := sum(1 for _ in file)) != lines:
                raise ValueError(f"{content} has {count} lines, {data} {lines}")
        many = content.stat().st_size
        a_byte = len(whole) / many
        for row in rows.values():
            row["bits_per_byte"] = math.log2(row["perplexity"]) * a_byte
        rows = xz_rules(text / "train.txt", content) | rows
    if score is not None:
        # the last object; str.splitlines would also cut at U+2028, which names may have
        model = json.loads(score.read_text("utf-8").rstrip("\n").rpartition("\n")[2])
        if not {"tokens", "bytes"} <= model.keys():
            raise ValueError(f"{score}: not what score --json prints")
        # a masked model scores no ends of lines
        expected = len(whole) - (0 if "log_prob" in model else lines)
        if model["tokens"] != expected:
            of_split = f"{data / split} {expected}"
            raise ValueError(f"{score} has {model['tokens']} tokens, {of_split}")
        if text is not None and model["bytes"] not in (many, many - lines):
            raise ValueError(f"{score} has {model['bytes']} bytes, {content} {many}")
        rows["model"] = {name: model[name] for name in ("perplexity", "bits_per_byte")}
    if output is not None:
        record = {"split": split, "tokens": len(ids), "train_tokens": len(train)}
        write_json(output, found | record | {"dictionary": size, "rules": rows})
    columns = {"bits_per_byte": ".3f", "perplexity": ",.2f"}
    cells = (
        [name, *(format(row[c], f) if c in row else "-" for c, f in columns.items())]
        for name, row in rows.items()
    )
    print(markdown(["", "bits a byte", "perplexity a token"], cells))
    if unknown := int((ids == UNK).sum()):
        why = "are not in the dictionary, so the text itself is less probable"
        print(f"\n{unknown:,} of {len(ids):,} tokens {why}.")
    if "log_prob" in model and found["bigram"] < model["perplexity"]:
        print(
            "\nThe bigram is better than the model, which has learned too little: "
            "more updates, or more text, may help."
        )


def xz_rules(train: Path, text: Path) -> dict[str, dict[str, float]]:
    """Bits a byte of a text as xz packs it, by itself and after the train text.

    Of large texts the end of train and the beginning of the other are packed.
    """
    with open(train, "rb") as file, open(text, "rb") as other:
        file.seek(max(0, train.stat().st_size - MOST_BYTES))
        before, content = file.read(), other.read(MOST_BYTES)
    alone, together, first = (
        len(lzma.compress(each, preset=9 | lzma.PRESET_EXTREME))
        for each in (content, before + content, before)
    )
    found = {"xz": alone, "xz after train": together - first}
    return {name: {"bits_per_byte": 8 * x / len(content)} for name, x in found.items()}
