"""The command: its output, and one clear line where something is wrong."""

import io
import json
import logging
import sys

import pytest
import transformers

from fairseq_transnormer.checkpoints.identity import weights_fingerprint
from tests.commands import command

main = command("generate")


@pytest.fixture
def run(t2, capsys, monkeypatch):
    """Run the command on the T2: status, output, errors, warnings of transformers."""
    handler = logging.getLogger("transformers").handlers[0]

    def run(*arguments) -> tuple[int, str, str]:
        transformers.utils.logging.warning_once.cache_clear()
        monkeypatch.setattr(handler, "stream", sys.stderr)
        status = main(["--path", t2.path, "--device", "cpu", *map(str, arguments)])
        return status, *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ("--beam 3", {"beam": 3}),
        ("--top-p 0.7 --seed 3", {"top_p": 0.7, "seed": 3}),
        ("--sampling --seed 8", {"sampling": True, "seed": 8}),
    ],
)
def test_prompts_and_standard_input(run, t2, monkeypatch, arguments, settings):
    prompts = ["the river", "it"]
    results = t2.generator.generate(prompts, max_new_tokens=9, **settings)
    monkeypatch.setattr(sys, "stdin", io.StringIO("the river\nit\n"))
    named = [word for prompt in prompts for word in ("--prompt", prompt)]
    for given in (named, ["--input", "-"]):
        status, out, err = run(*given, *arguments.split(), "--max-new-tokens", 9)
        assert (status, err) == (0, "")
        assert out.splitlines() == [each.text for each in results]


@pytest.mark.parametrize("stream", [(), ("--stream",)])
def test_input_file_with_every_setting(run, t2, tmp_path, stream):
    path = tmp_path / "prompts.txt"
    path.write_text("the river\n\n  an old king \n", encoding="utf-8")
    options = {
        "max_new_tokens": 10,
        "min_new_tokens": 2,
        "lines": 2,
        "length_penalty": 0.5,
        "top_k": 7,
        "temperature": 0.8,
        "seed": 21,
        "batch_size": 2,
    }
    arguments = [
        each
        for name, value in options.items()
        for each in ("--" + name.replace("_", "-"), value)
    ]
    status, out, err = run("--input", path, *stream, *arguments)
    results = t2.generator.generate(["the river", "", "an old king"], **options)
    assert (status, err) == (0, "")
    assert out == "".join(each.text + "\n" for each in results)


def test_json(run, t2):
    status, out, _ = run("--prompt", "the river", "--json", "--max-new-tokens", 5)
    result = t2.generator.generate("the river", max_new_tokens=5)
    assert status == 0
    assert json.loads(out) == {
        "prompt": "the river",
        "text": result.text,
        "tokens": result.tokens,
        "positional_scores": result.positional_scores,
        "score": result.score,
        "weights": weights_fingerprint(t2.path),
    }


def test_an_exported_folder(zoo, t2, capsys):
    arguments = "--prompt", "the river", "--max-new-tokens", "5", "--device", "cpu"
    assert main(["--path", str(zoo.exported["t2"].folder), *arguments]) == 0
    expected = t2.generator.generate("the river", max_new_tokens=5).text
    assert capsys.readouterr().out == expected + "\n"
