"""Continue prompts with a language model of this package.

Texts and scores are those of fairseq-interactive with --max-len-a 1 --max-len-b
(max-new-tokens - 1) and the same settings, but a prompt is read in one pass.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, cast

from ..checkpoints.identity import weights_fingerprint
from ..data.texts import argument_text, read_given_lines, tell_unknown_words
from ..data.whole_files import json_text
from ..subcommands import run_command
from .errors import GenerationError
from .settings import GenerationSettings, Settings

if TYPE_CHECKING:
    from .generator import TextGenerator


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status, 2 if what was given does not do."""
    parser = _parser()
    args = parser.parse_args(arguments)
    return run_command(parser.prog, lambda: _run(args), GenerationError)


def _parser() -> argparse.ArgumentParser:
    defaults = GenerationSettings()
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_transnormer generate",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--path", required=True, help="checkpoint of fairseq-train")
    add("--data", help="folder with dict.txt; None: the training's, or --path's")
    add(
        "--sentencepiece-model",
        metavar="FILE",
        help="None: sentencepiece.bpe.model beside dict.txt or --path, if it is there",
    )
    add("--device", help="None: cuda if there is one, else cpu")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--prompt",
        type=argument_text,
        action="append",
        help="may be given several times",
    )
    source.add_argument("--input", metavar="FILE", help="a prompt a line; -: stdin")
    add("--max-new-tokens", type=int, help="longest continuation of a line")
    add("--min-new-tokens", type=int, help="shortest continuation of a line")
    add("--lines", type=int, help="lines to generate")
    add("--beam", type=int, help="hypotheses, or samples; the best is printed")
    add("--length-penalty", type=float, help="above 1: favour longer texts")
    add("--sampling", action="store_true", help="draw tokens from all")
    add("--top-k", type=int, help="draw from the k likeliest tokens")
    add("--top-p", type=float, help="draw from the tokens that sum to probability p")
    add("--temperature", type=float, help="divides the logits")
    add("--seed", type=int, help="prompt i (from 0) draws with seed + i")
    add("--batch-size", type=int, help="prompts that run together")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--stream", action="store_true", help="print text as it comes")
    output.add_argument(
        "--json", action="store_true", help="print an object a prompt: text, score, ..."
    )
    parser.set_defaults(**asdict(defaults))
    return parser


def _run(args: argparse.Namespace) -> None:
    settings = cast(
        Settings,
        {each.name: getattr(args, each.name) for each in fields(GenerationSettings)},
    )
    # a wrong setting shall not wait for the checkpoint
    GenerationSettings(**settings)
    # fairseq: seconds that --help shall not cost
    from . import TextGenerator

    generator = TextGenerator.from_checkpoint(
        args.path, args.data, args.device, args.sentencepiece_model
    )
    prompts = _with_warnings(_prompts(args), generator)
    if args.stream:
        _print_streams(generator, prompts, settings)
        return
    all_prompts = list(prompts)
    results = generator.generate(all_prompts, **settings)
    made_with = {"weights": weights_fingerprint(args.path)} if args.json else {}
    for prompt, result in zip(all_prompts, results, strict=True):
        if args.json:
            found = {"prompt": prompt, **asdict(result), **made_with}
            print(json_text(found, ensure_ascii=False))
        else:
            print(result.text)


def _print_streams(
    generator: TextGenerator, prompts: Iterator[str], settings: Settings
) -> None:
    """Each prompt as soon as it is there; with a seed, as if all ran together."""
    for number, prompt in enumerate(prompts):
        for piece in generator.stream(prompt, number, **settings):
            print(piece, end="", flush=True)
        print(flush=True)


def _prompts(args: argparse.Namespace) -> Iterator[str]:
    if args.prompt is not None:
        yield from args.prompt
        return
    for line in read_given_lines(args.input, GenerationError, "prompt"):
        yield line.strip()


def _with_warnings(prompts: Iterator[str], generator: TextGenerator) -> Iterator[str]:
    for number, prompt in enumerate(prompts, 1):
        unknown = generator.unknown_words(prompt)
        tell_unknown_words(f"prompt {number}", unknown, generator.dictionary.unk_word)
        yield prompt
