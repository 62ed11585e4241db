"""Images a second, pixel by pixel: constant state, key-value cache, recomputing.

    python -m benchmarks image_generation

Every contestant draws the same number of images through the package's own generator,
side by side, from the whole distribution. Random weights, no dropout: what a step costs
does not depend on them. "recomputed" is the same model and generator, which computes
all tokens anew at each step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fairseq_transnormer.argument_types import integer_between, positive_integer
from fairseq_transnormer.ops import state_bytes

from ..harness import cases, command_line

if TYPE_CHECKING:
    from fairseq_transnormer.inference import TextGenerator

NAME = "image_generation"
SIDES = [8, 16, 28]
CACHE, STATE, AGAIN = "key-value cache", "constant state", "recomputed"
# how the time of an image grows with its pixels, at most
GROWTHS = {
    ("TransNormer T2", STATE): 1,
    ("TransNormer T2", AGAIN): 2,
    ("1+elu", STATE): 1,
    ("1+elu", AGAIN): 2,
    # of the tokens that are kept all are sorted for each pixel
    ("LSH-1", CACHE): 2,
    ("LSH-1", AGAIN): 2,
    ("LSH-4", CACHE): 2,
    ("LSH-4", AGAIN): 2,
    ("vanilla", CACHE): 2,
    ("vanilla", AGAIN): 3,
}


def way_of(system: str) -> str:
    """What a system of its own keeps from pixel to pixel."""
    return STATE if (system, STATE) in GROWTHS else CACHE


def contestants(options) -> dict[tuple[str, str], TextGenerator]:
    """(System, way) -> generator."""
    from .pixel_models import SYSTEMS, generator

    found = {}
    for system in SYSTEMS:
        found[system, way_of(system)] = generator(options, system)
        found[system, AGAIN] = generator(options, system, keeps_states=False)
    return found


def draw(generator: TextGenerator, pixels: int, images: int) -> list[list[int]]:
    """The tokens of ``images`` images, each with its end."""
    drawn = generator.generate(
        [""] * images,
        sampling=True,
        min_new_tokens=pixels,
        max_new_tokens=pixels,
        batch_size=images,
    )
    return [each.tokens for each in drawn]


def kept_bytes(generator: TextGenerator, pixels: int) -> int:
    """What is kept of one image in front of its last pixel."""
    tokens = torch.full((1, pixels), 4, device=generator.trained.device)
    with torch.no_grad():
        _, states = generator.model.model.features(tokens, return_states=True)
    return sum(state_bytes(state) for state in states)


def measure(
    generators: dict, side: int, limits: cases.Limits, options
) -> list[dict[str, object]]:
    """A row for each contestant."""
    pixels, rows, calls = side**2, {}, {}
    for key, generator in generators.items():
        name = ", ".join(key)
        row = rows[name] = {
            "contestant": name,
            "context": pixels,
            "batch": options.images,
            "kept_bytes": kept_bytes(generator, pixels),
        }
        reason = limits.skip(name, pixels, GROWTHS[key])
        if reason is None:
            calls[name] = lambda g=generator: draw(g, pixels, options.images)
        else:
            row["skipped"] = reason
    cases.time_in_turns(rows, calls, options)
    for name, row in rows.items():
        limits.note(name, pixels, row)
    return list(rows.values())


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = command_line.benchmark_parser(NAME, __doc__.splitlines()[0])
    cases.add_limits(parser)
    add = parser.add_argument
    add("--sides", type=integer_between(2), nargs="+", default=SIDES)
    add("--images", type=positive_integer, default=16, help="side by side")
    add("--levels", type=positive_integer, default=256, help="of a pixel")
    command_line.add_width_and_heads(parser, 256)
    add("--layers", type=integer_between(2), default=8, help="of the models")
    options = parser.parse_args(arguments)
    command_line.check_width_and_heads(parser, options)
    options.sides.sort()
    command_line.prepare(options)
    generators = contestants(options)
    record = command_line.record(
        NAME,
        options,
        arguments,
        {
            "images": options.images,
            "levels": options.levels,
            "width": options.width,
            "heads": options.heads,
            "layers": options.layers,
            "parameters": {
                system: sum(p.numel() for p in generator.model.parameters())
                for (system, way), generator in generators.items()
                if way != AGAIN
            },
        },
    )
    limits = cases.Limits(options)
    for generator in generators.values():
        draw(generator, 2, options.images)  # what the first call does besides
    for side in options.sides:
        record.add(measure(generators, side, limits, options))
        print(f"{NAME}: {side} x {side}", flush=True)
    record.finish()
