"""Settings of fairseq are read as values: what they are for works, code does not."""

import ast
import functools
import importlib
import math
from pathlib import Path

import fairseq
import pytest
from fairseq import utils

import fairseq_transnormer.plugin  # noqa: F401 (changes fairseq)
from fairseq_transnormer.plugin.literal_values import evaluate
from tests.messages import refuses

SPELT = (
    *(ast.Expression, ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.expr_context),
    *(ast.BinOp, ast.Add, ast.Mult, ast.UnaryOp, ast.USub),
)
FAIRSEQ = Path(fairseq.__file__).parent


@functools.cache
def sources():
    """fairseq's, by module name; examples are programs of their own."""
    trees = {}
    for path in sorted(FAIRSEQ.rglob("*.py")):
        parts = path.relative_to(FAIRSEQ.parent).with_suffix("").parts
        if parts[1] != "examples":
            trees[".".join(parts)] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def calls(tree, name):
    return any(
        isinstance(each, ast.Name) and each.id == name for each in ast.walk(tree)
    )


def test_fairseq_evaluates_nothing_with_pythons_eval():
    """Also modules that were not imported yet when this package was."""
    found = [name for name, tree in sources().items() if calls(tree, "eval")]
    assert "fairseq.utils" in found and "fairseq.models.transformer_lm" in found
    modules = [importlib.import_module(name) for name in found]
    assert [each for each in modules if getattr(each, "eval", None) != evaluate] == []
    assert not [name for name, tree in sources().items() if calls(tree, "exec")]


def test_fairseq_gives_texts_to_a_shell_where_it_is_known_to():
    """compatibility.check_name_for_shell stands there."""
    found = set()
    for name, tree in sources().items():
        for node in ast.walk(tree):
            words = {"system", "popen", "getoutput", "getstatusoutput"}
            is_shell = isinstance(node, ast.keyword) and node.arg == "shell"
            if is_shell or (isinstance(node, ast.Attribute) and node.attr in words):
                found.add(name)
    assert found == {"fairseq.data.fasta_dataset"}


def spelt_values():
    """All texts in fairseq's sources that Python itself reads as values."""
    found = set()
    for tree in sources().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    for text in sorted(found):
        try:
            tree = ast.parse(text.lstrip(" \t"), mode="eval")
            if all(isinstance(each, SPELT) for each in ast.walk(tree)):
                yield text, eval(text)
        # "{}-{}" and all that is no expression
        except (SyntaxError, ValueError, TypeError):
            continue


def test_what_fairseqs_sources_spell_has_the_value_that_python_gives_it():
    texts = dict(spelt_values())
    assert "[(512, 10, 5)] + [(512, 3, 2)] * 4" in str(texts) and len(texts) > 30
    for text, value in texts.items():
        assert repr(evaluate(text)) == repr(value), text


VALUES = (
    "[(512,10,5)] + [(512,3,2)] * 4 + [(512,2,2)] + [(512,2,2)]", " (0.9, 0.98)",
    "\t4 * [1, -2]", "[1,2]", "{'main': 1.5, 'a': -1}", "{1, 2}",
    "('a.bin', 'lexicon.lst', 4, -1)", "2**10 - 7 // 2 + 9 % 4", "2 ** -1",
    "2.5e3 / 2", "[] + [] * 3", "(1,) * -1", "True", "None", "''", "1_000",
    "[[[1]]]",
)  # fmt: skip


def test_values_are_those_of_python():
    for text in VALUES:
        assert repr(evaluate(text)) == repr(eval(text))


CODE = "__import__('os').mkdir('made')"


CODES = (
    CODE, f"[{CODE}]", f"{{1: {CODE}}}", f"f'{{{CODE}}}'", f"(lambda: {CODE})()",
    f"[{CODE} for a in [1]]", f"1 if {CODE} else 2", f"1 and {CODE}",
    f"(a := {CODE})", "'\\'+' and __import__(chr(111)+chr(115)).mkdir(chr(97)) #'",
    "a", "a.b", "().__class__", "[1][0]", "[*[1]]", "{**{}}", "1 < 2", "not 1",
    "~1", "1 << 2", "1 | 2", "[1] @ [1]", "...", "1j", "b'a'", "(-1) ** 0.5",
    "'a' * 3", "'%d' % 1", "'a' + 'b'", "[1] + (1,)", "[1] * [1]", "[1] * 1.5",
    "-[1]", "-'a'", "{[1]}", "{{}: 1}", "1 / 0", "10.0 ** 999", "", "import os",
    "a = 1", "1\n2", "\0", "(" * 50 + ")", "(" * 5000 + ")" * 5000,
    "-" * 100_000 + "1", "+".join("1" for _ in range(100_000)), "9" * 5000,
)  # fmt: skip


def test_all_else_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text in CODES:
        with refuses(ValueError, "allowed", "numbers"):
            evaluate(text)
        assert not list(tmp_path.iterdir()), text


HUGE = (
    "9**9**9", "[0] * 10**12", "10**12 * (0, 1)", "(2**4000) * (2**4000)",
    "2**4000 + 2**4096", "[0] * 1e400",
    "[" + ",".join("[0]*90000" for _ in range(1000)) + "]",
    "+".join("[0]*1000" for _ in range(200)), "1" + "*999999999" * 500,
)  # fmt: skip


def test_huge_values_are_refused_before_they_are_made():
    for text in HUGE:
        with refuses(ValueError, "more than"):
            evaluate(text)


def test_fairseqs_own_readers_of_settings():
    assert utils.eval_str_list("0.5") == [0.5]
    assert utils.eval_str_list("[1, 2]", type=int) == [1, 2]
    assert utils.eval_str_dict("{'name': 'scaled'}") == {"name": "scaled"}
    assert utils.eval_bool("True") and not utils.eval_bool(None)
    assert utils.eval_bool(True, default=math.pi) == math.pi
    with pytest.raises(ValueError, match="allowed"):
        utils.eval_str_list("print(1)")
