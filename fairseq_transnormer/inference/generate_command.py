"""``python -m fairseq_transnormer generate``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ..data.texts import argument_text, read_given_lines, tell_unknown_words
from ..data.whole_files import json_text
from .generation_settings import GenerationSettings

if TYPE_CHECKING:
    from .generate import TextGenerator

PROMPTS = tyro.conf.create_mutex_group(required=True, title="prompts")
OUTPUT = tyro.conf.create_mutex_group(required=False, title="output")


def generate(
    path: str,
    settings: GenerationSettings,
    data: str | None = None,
    sentencepiece_model: str | None = None,
    device: str | None = None,
    prompt: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], PROMPTS] = (),
    input: Annotated[str | None, PROMPTS] = None,
    stream: Annotated[bool, OUTPUT] = False,
    json: Annotated[bool, OUTPUT] = False,
) -> None:
    """Continue prompts with a language model of this package.

    Texts are those of fairseq-interactive with --max-len-a 1 --max-len-b
    (max-new-tokens - 1) and the same settings, but a prompt is read in one pass.

    Args:
        path: checkpoint of fairseq-train, or its export.
        data: folder with dict.txt; None: that of the training, or of --path.
        sentencepiece_model: file; None: the subword files next to dict.txt or --path.
        device: cpu, cuda, cuda:1, ...; None: cuda if there is one, else cpu.
        prompt: text to continue.
        input: file with a prompt per line; -: stdin.
        stream: print text as soon as it is generated.
        json: print an object per prompt: text, score, ...
    """
    # imported late: transformers would slow down --help by seconds
    from .generate import TextGenerator

    generator = TextGenerator.from_checkpoint(path, data, device, sentencepiece_model)
    prompts = _with_warnings(_prompts(prompt, input), generator)
    chosen = asdict(settings)
    if stream:
        _print_streams(generator, prompts, chosen)
        return
    made_with = {"weights": generator.trained.fingerprint()} if json else {}
    all_prompts = list(prompts)
    results = generator.generate(all_prompts, **chosen)
    for each, result in zip(all_prompts, results, strict=True):
        if json:
            found = {"prompt": each, **asdict(result), **made_with}
            print(json_text(found, ensure_ascii=False))
            continue
        print(result.text)
        if result.text.strip() == each.strip():
            hint = "the model ended the line; --top-p 0.9 draws other texts"
            print(f"{each!r}: {hint}", file=sys.stderr)


def _print_streams(
    generator: TextGenerator, prompts: Iterator[str], settings: dict[str, Any]
) -> None:
    """Continue each prompt when it is read; a seed gives the same texts as together."""
    for number, prompt in enumerate(prompts):
        for text in generator.stream(prompt, number, **settings):
            print(text, end="", flush=True)
        print(flush=True)


def _prompts(given: tuple[str, ...], file: str | None) -> Iterator[str]:
    if file is None:
        yield from map(argument_text, given)
        return
    for line in read_given_lines(file):
        yield line.strip()


def _with_warnings(prompts: Iterator[str], generator: TextGenerator) -> Iterator[str]:
    for number, prompt in enumerate(prompts, 1):
        name = f"prompt {number}"
        tell_unknown_words(name, generator.words.unknown(prompt, name))
        yield prompt
