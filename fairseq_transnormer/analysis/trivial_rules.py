"""Accuracy of rules that need no model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ..data.whole_files import write_json
from ..outputs import OutputFile

# ListOps' symbols: ten digits, then these
MIN, MAX, MED, SM, END = range(10, 15)
OPERATORS: dict[int, Callable[[Sequence[int]], int]] = {
    MIN: min,
    MAX: max,
    # the mean of the middle two of an even count, rounded down
    MED: lambda digits: int(np.median(digits)),
    SM: lambda digits: sum(digits) % 10,
}


def digits_under_the_root(tokens: np.ndarray) -> int:
    """ListOps without what is nested: int (N,) with an operator first.

    Where the root has no digit below it, 0, which no rule could know better.
    """
    depth, digits = 0, []
    for token in tokens.tolist():
        if token == END:
            depth -= 1
        elif token > 9:
            depth += 1
        elif depth == 1:
            digits.append(token)
    return OPERATORS[int(tokens[0])](digits) if digits else 0


def trivial_rules(
    data: Path, /, split: str = "test", output: OutputFile = None
) -> None:
    """Accuracy of rules that any model of the arena should pass.

        python -m fairseq_transnormer analyse trivial_rules data-bin/lra/listops

    * largest class: the class that is most frequent in train;
    * first token: the class that is most frequent in train after the same first token;
    * ListOps, digits under the root: the root's operator over the digits directly below
      it, the other arguments left out.

    A model whose accuracy is that of a rule has shown no more than the rule.

    Args:
        data: folder of labelled sequences.
        split: that is predicted.
        output: JSON file for the figures.
    """
    from ..data.labelled_sequences import LabelledSequences, read_manifest

    settings = read_manifest(data)["settings"]
    train, examples = (LabelledSequences(data, name) for name in ("train", split))
    first, labels = np.array([(int(x.tokens[0][0]), x.label) for x in train]).T
    largest = np.bincount(labels).argmax()
    best = {token: np.bincount(labels[first == token]).argmax() for token in {*first}}
    rules: dict[str, Callable[[np.ndarray], int]] = {
        "largest class": lambda tokens: largest,
        "first token": lambda tokens: best.get(tokens[0], largest),
    }
    if settings.get("data") == "listops":
        rules["digits under the root"] = digits_under_the_root
    right, count = dict.fromkeys(rules, 0), len(examples)
    for tokens, _, label in examples:
        for name, rule in rules.items():
            right[name] += rule(tokens[0].numpy()) == label
    found = {name: number / count for name, number in right.items()}
    if output is not None:
        record = {"accuracy": found, "split": split, "examples": count}
        write_json(output, record | {"settings": settings})
    for name, value in found.items():
        error = (value * (1 - value) / count) ** 0.5
        print(f"{name:22} {100 * value:6.2f} % (standard error {100 * error:.2f})")
