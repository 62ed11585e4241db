"""``python -m fairseq_transnormer score``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from io import StringIO
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ..data.texts import argument_text, read_lines
from ..data.whole_files import json_text

if TYPE_CHECKING:
    from .score import TextScore, TextScorer

TEXTS = tyro.conf.create_mutex_group(required=True, title="texts")
# units that are read before the first is printed
UNITS_AT_ONCE = 1024
COLUMNS = "log-prob. tokens words bytes unknown ppl/token ppl/word bits/byte".split()
WIDTH = 11
Unit = Literal["line", "document", "file"]
# name of a unit: "text", or "input" with or without "line", or "total"
Name = dict[str, Any]


def score(
    path: str,
    text: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], TEXTS] = (),
    input: Annotated[
        tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], TEXTS
    ] = (),
    data: str | None = None,
    sentencepiece_model: str | None = None,
    device: str | None = None,
    by: Unit | None = None,
    window: int | Literal["all"] | None = None,
    overlap: int = 0,
    batch_tokens: int = 8192,
    tokens: bool = False,
    json: bool = False,
    stream: bool = False,
) -> None:
    """Score texts: log-probability, perplexity and bits per byte.

    A causal model gives the log-probability of each token after the earlier ones, and
    of the first one after </s>, as in fairseq. A masked model gives the
    pseudo-log-likelihood: each token is masked in turn. Log-probabilities are in nats.
    Ends of lines count as tokens of a causal model.

    Args:
        path: checkpoint of fairseq-train, or its export.
        text: text to score.
        input: text files in UTF-8; -: stdin.
        data: folder with dict.txt; None: that of the training, or of --path.
        sentencepiece_model: file; None: the subword files next to dict.txt or --path.
        device: cpu, cuda, cuda:1, ...; None: cuda if there is one, else cpu.
        by: with --input, the unit that is scored; blank lines separate documents; None:
            file.
        window: tokens per window, as fairseq-eval-lm's --tokens-per-sample; all: the
            whole earlier text, by a carried state, if the model's state has constant
            size; None: the length of the training's sequences.
        overlap: tokens of a window that are read again without a score, as
            fairseq-eval-lm's --context-window.
        batch_tokens: approximate number of tokens that run together.
        tokens: also print each token's log-probability.
        json: print an object per line, the sum last.
        stream: print each line, document or file as soon as it is read.
    """
    from .score import Context, TextScore, TextScorer, check_known

    if by and not input:
        raise ValueError(f"--by {by}: allowed with --input only")
    context = None
    if window is not None or overlap:
        context = Context(None if window == "all" else window, overlap)
    scorer = TextScorer.from_checkpoint(
        path,
        data,
        device,
        sentencepiece_model,
        context=context,
        batch_tokens=batch_tokens,
    )
    made_with = {"context": str(scorer.context), "path": path}
    if json:
        made_with["weights"] = scorer.trained.fingerprint()
    total, longest = TextScore(ends_scored=not scorer.is_masked), 0
    waiting: list[tuple[Name, TextScore]] = []
    kind = "pseudo-log-likelihood" if scorer.is_masked else "log-probability"
    columns = "".join(f" {name:>{WIDTH}}" for name in COLUMNS)
    heading = f"{kind} in nats; context: {scorer.context}\n{columns}\n"
    heading = "" if json else heading
    files = list(chain.from_iterable(input))
    units = _units(text, files, by, scorer.is_masked)
    one_by_one = stream or (input and by in (None, "file"))
    for name, found in _scores(units, scorer, tokens, bool(one_by_one)):
        total, longest = total + found, max(longest, found.tokens)
        waiting.append((name, found))
        if total.known:  # print nothing before a word is known
            print(end=heading)
            heading = ""
            while waiting:
                _print(json, *waiting.pop(0))
    given = " ".join(files or ["--text"])
    if not total.words:
        raise ValueError(f"{given}: no text in it; allowed: a word or more")
    check_known(total, given)
    _print(json, {"total": True}, total, made_with)
    _warn(total, longest, scorer)


def _warn(total: TextScore, longest: int, scorer: TextScorer) -> None:
    """Print warnings on the figures to stderr."""
    if total.unknown:
        print(
            f"{total.unknown:,} of {total.tokens:,} tokens are not in the dictionary "
            "and are scored as <unk>: the text itself is less probable",
            file=sys.stderr,
        )
    length = scorer.trained.manifest.sequence_length
    if scorer.context.window is None and length is not None and longest > length:
        print(
            f"up to {longest:,} tokens were read with a carried state; the training's "
            f"sequences have {length:,}, and later tokens may have worse scores than "
            "in windows (--window)",
            file=sys.stderr,
        )


def _scores(
    units: Iterator[tuple[Name, Iterable[str]]],
    scorer: TextScorer,
    tokens: bool,
    one_by_one: bool,
) -> Iterator[tuple[Name, TextScore]]:
    """The score of each unit, with its name."""
    if one_by_one:
        for name, lines in units:
            yield name, next(scorer.stream([lines], tokens, [_shown(name)]))
        return
    whole = ((name, "".join(lines)) for name, lines in units)
    while group := list(islice(whole, UNITS_AT_ONCE)):
        names, texts = zip(*group, strict=True)
        scores = scorer.score_each(texts, tokens, map(_shown, names))
        yield from zip(names, scores, strict=True)


def _units(
    texts: Iterable[str], files: Iterable[str], by: Unit | None, is_masked: bool
) -> Iterator[tuple[Name, Iterable[str]]]:
    """The name of each unit, and its lines.

    A document ends at a blank line, as with fairseq's ``--sample-break-mode
    complete_doc``.
    """
    for number, text in enumerate(texts, 1):
        yield {"text": number}, StringIO(argument_text(text), newline=None)
    for name in files:
        lines = enumerate(read_lines(name), 1)
        if by == "line":
            for number, line in lines:
                # a masked model scores no token of a blank line
                if line.strip() or not is_masked:
                    yield {"input": name, "line": number}, [line]
        elif by == "document":
            for has_text, group in groupby(lines, lambda pair: bool(pair[1].strip())):
                if has_text:
                    number, line = next(group)
                    rest = (each for _, each in group)
                    yield {"input": name, "line": number}, chain([line], rest)
        else:
            yield {"input": name}, (line for _, line in lines)


def _shown(name: Name) -> str:
    if "input" in name:
        return f"{name['input']}:{name['line']}" if "line" in name else name["input"]
    return f"text {name['text']}" if "text" in name else "total"


def _print(
    as_json: bool, name: Name, score: TextScore, made_with: Name | None = None
) -> None:
    """Print a line of JSON, or a line of the table with lines for tokens."""
    if as_json:
        content = name | score.as_dict() | (made_with or {})
        print(json_text(content, ensure_ascii=False), flush=True)
        return
    from .score import RATIOS

    counts = (score.tokens, score.words, score.bytes, score.unknown)
    shown = [f"{score.log_prob:.3f}", *(f"{each:,}" for each in counts)]
    for ratio, digits in zip(RATIOS, (2, 2, 4), strict=True):
        value = getattr(score, ratio)
        text = "-" if value is None else f"{value:,.{digits}f}"
        shown.append(text if len(text) <= WIDTH else f"{value:.4e}")
    print("".join(f" {each:>{WIDTH}}" for each in shown), f" {_shown(name)}")
    for symbol, nats in score.token_log_probs or ():
        print(f"{nats:12.4f}  {symbol}")
    sys.stdout.flush()
