"""Continue prompts with a language model of this package.

Texts are those of fairseq-interactive with --max-len-a 1 --max-len-b
(max-new-tokens - 1) and the same settings, but a prompt is read in one pass.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from ..argument_types import integer_between
from ..data.texts import argument_text, read_given_lines, tell_unknown_words
from ..data.whole_files import json_text
from ..subcommands import command_parser, run_command

if TYPE_CHECKING:
    from .generate import TextGenerator

positive = integer_between(1, 10**6)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status, 2 if what was given does not do."""
    parser = _parser()
    args = parser.parse_args(arguments)
    return run_command(parser.prog, lambda: _run(args))


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("fairseq_transnormer generate", __doc__)
    add = parser.add_argument
    add("--path", required=True, help="checkpoint of fairseq-train, or its export")
    add("--data", help="folder with dict.txt (default: the training's, or --path's)")
    help_text = "(default: those next to dict.txt or --path, if there are any)"
    add("--sentencepiece-model", metavar="FILE", help=help_text)
    add("--device", help="(default: cuda if there is one, else cpu)")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--prompt",
        type=argument_text,
        action="append",
        help="may be given several times",
    )
    source.add_argument("--input", metavar="FILE", help="a prompt a line; -: stdin")
    # without a default here: TextGenerator has them
    own = parser.add_argument_group("settings", argument_default=argparse.SUPPRESS)
    add = own.add_argument
    add("--max-new-tokens", type=positive, help="longest continuation of a line (128)")
    add("--min-new-tokens", type=integer_between(0, 10**6), help="shortest one (0)")
    add("--lines", type=positive, help="lines to generate (1)")
    add("--beam", type=positive, help="hypotheses, or samples; the best is printed (1)")
    add("--length-penalty", type=float, help="above 1: favour longer texts (1)")
    add("--sampling", action="store_true", help="draw tokens from all")
    add("--top-k", type=positive, help="draw from the k likeliest tokens")
    add("--top-p", type=float, help="draw from the tokens that sum to probability p")
    add("--temperature", type=float, help="divides the logits (1)")
    seeds = integer_between(0, 2**63 - 1)
    add("--seed", type=seeds, help="prompt i (from 0) draws with seed + i")
    add("--batch-size", type=positive, help="prompts that run together (16)")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--stream", action="store_true", help="print text as it comes")
    output.add_argument(
        "--json", action="store_true", help="print an object a prompt: text, score, ..."
    )
    return parser


def _run(args: argparse.Namespace) -> None:
    # transformers: seconds that --help shall not cost
    from .generate import GenerationSettings, TextGenerator

    names = {each.name for each in fields(GenerationSettings)}
    settings = {name: value for name, value in vars(args).items() if name in names}
    # a wrong setting shall not wait for the checkpoint
    GenerationSettings(**settings)
    generator = TextGenerator.from_checkpoint(
        args.path, args.data, args.device, args.sentencepiece_model
    )
    prompts = _with_warnings(_prompts(args), generator)
    if args.stream:
        _print_streams(generator, prompts, settings)
        return
    all_prompts = list(prompts)
    results = generator.generate(all_prompts, **settings)
    made_with = {"weights": generator.trained.fingerprint()} if args.json else {}
    for prompt, result in zip(all_prompts, results, strict=True):
        if args.json:
            found = {"prompt": prompt, **asdict(result), **made_with}
            print(json_text(found, ensure_ascii=False))
        else:
            print(result.text)


def _print_streams(
    generator: TextGenerator, prompts: Iterator[str], settings: dict[str, Any]
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
    for line in read_given_lines(args.input, "prompt"):
        yield line.strip()


def _with_warnings(prompts: Iterator[str], generator: TextGenerator) -> Iterator[str]:
    for number, prompt in enumerate(prompts, 1):
        name = f"prompt {number}"
        tell_unknown_words(name, generator.words.unknown(prompt, name), "<unk>")
        yield prompt
