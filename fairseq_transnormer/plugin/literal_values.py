"""Read settings that are written as Python values without Python's ``eval``.

fairseq evaluates some of its settings (``conv_feature_layers``, ``adam_betas``, ...),
also those of a checkpoint. ``evaluate`` replaces ``eval`` there
(plugin/compatibility.py). It allows values and bounded arithmetic, but no calls.
"""

from __future__ import annotations

import ast
import operator
import types
from typing import Any

# items that ``+`` and ``*`` may make in all of one text
MOST_ITEMS = 100_000
# of a whole number that arithmetic makes
MOST_BITS = 4096
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
SIGNS = {ast.UAdd: operator.pos, ast.USub: operator.neg}
ALLOWED = (
    "numbers, quoted texts, None, True, False, tuples, lists, sets, dicts, and "
    "+ - * / // % ** of numbers, + and * of short lists"
)


def evaluate(text: str) -> Any:
    """Return the value of a text, as ``eval`` would.

    Raises:
        TypeError: the argument is not a str.
        ValueError: the text has more than values and arithmetic, or huge values.
    """
    if not isinstance(text, str):
        raise TypeError(f"a {type(text).__name__}; allowed: str")
    try:
        return _Evaluation().value(ast.parse(text.lstrip(" \t"), mode="eval").body)
    except _Refused as refused:
        reason = str(refused)
    # too deep for the parser or for us, 1 / 0, a list in a set, ...
    except (SyntaxError, ValueError, TypeError, ArithmeticError) as error:
        reason = str(error)
    except (RecursionError, MemoryError):
        reason = "too deep"
    raise ValueError(f"{text[:80]!r} is not a value ({reason}); allowed: {ALLOWED}")


class _Refused(Exception):
    """The text has something that is not allowed."""


class _Evaluation:
    """The evaluation of one text, which limits the number of items."""

    def __init__(self):
        self.items_left = MOST_ITEMS

    def value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            if not isinstance(node.value, (bool, int, float, str, types.NoneType)):
                raise _Refused(f"a {type(node.value).__name__}")
            return node.value
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            kind = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
            return kind([self.value(each) for each in node.elts])
        if isinstance(node, ast.Dict):
            if None in node.keys:
                raise _Refused("** in a dict")
            pairs = zip(node.keys, node.values, strict=True)
            return {self.value(key): self.value(each) for key, each in pairs}
        if isinstance(node, ast.UnaryOp) and type(node.op) in SIGNS:
            return SIGNS[type(node.op)](_number(self.value(node.operand)))
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return self.result(node.op, self.value(node.left), self.value(node.right))
        raise _Refused(type(node).__name__)

    def result(self, kind: ast.operator, left: Any, right: Any) -> Any:
        sizes = [len(each) for each in (left, right) if isinstance(each, (list, tuple))]
        if len(sizes) == 2 and isinstance(kind, ast.Add):
            self._make(sum(sizes))
        elif len(sizes) == 1 and isinstance(kind, ast.Mult):
            count = right if isinstance(left, (list, tuple)) else left
            self._make(sizes[0] * max(0, _number(count)))
        else:
            _check_bits(kind, _number(left), _number(right))
        found = OPERATORS[type(kind)](left, right)
        if isinstance(found, complex):
            raise _Refused("a complex number")
        return found

    def _make(self, items: int) -> None:
        self.items_left -= items
        if not self.items_left >= 0:
            raise _Refused(f"more than {MOST_ITEMS} items")


def _number(value: Any) -> int | float:
    if not isinstance(value, (int, float)):
        raise _Refused(f"arithmetic of a {type(value).__name__}")
    return value


def _check_bits(kind: ast.operator, left: float, right: float) -> None:
    """Refuse whole numbers whose power or product would be huge."""
    if isinstance(left, float) or isinstance(right, float):
        return
    if isinstance(kind, ast.Pow):
        bits = left.bit_length() * max(0, right)
    else:
        bits = left.bit_length() + right.bit_length()
    if bits > MOST_BITS:
        raise _Refused(f"a number of more than {MOST_BITS} bits")
