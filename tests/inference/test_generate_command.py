"""The command: its output, and one clear line where something is wrong."""

import io
import json
import os
import shutil
import subprocess
import sys

import pytest

from fairseq_transnormer.checkpoints.identity import weights_fingerprint
from tests.commands import command
from tests.messages import assert_names, command_refuses
from tests.paths import SCRIPTS

main = command("generate")


@pytest.fixture
def run(t2, capsys):
    """Run the command on the T2: status, output, errors."""

    def run(*arguments) -> tuple[int, str, str]:
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


def test_a_byte_order_mark_is_no_part_of_a_prompt(run, t2, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("the river\n", encoding="utf-8-sig")
    status, out, err = run("--input", path, "--max-new-tokens", 3)
    expected = t2.generator.generate("the river", max_new_tokens=3).text
    assert (status, out, err) == (0, expected + "\n", "")


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


def test_a_decoder_of_fairseqs_own(zoo, capsys):
    path = zoo.checkpoints["transformer_lm"]
    parts = path, "'transformer_lm'", "fairseq's own commands"
    command_refuses(main, ["--path", path, "--prompt", "it"], capsys, *parts)


def test_unknown_words_are_reported(run):
    status, _, err = run("--prompt", "it", "--prompt", "the xyzzy river <unk> plugh")
    assert status == 0
    assert err.count("\n") == 1
    assert_names(err, "prompt 2", "2 not", "dictionary", "<unk>", "xyzzy", "plugh")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ("--prompt it --temperature 0", ["temperature=0.0", "0.0001 to"]),
        ("--prompt it --top-p 2", ["top_p=2.0", "0 to 1"]),
        ("--prompt it --top-k 0", ["top_k=0", "1 to"]),
        ("--prompt it --beam 2.5", ["--beam", "'2.5'", "INT"]),
        ("--prompt it --seed 1", ["seed=1", "sampling"]),
        ("--prompt it --beam 2 --stream", ["beam=2", "stream", 1]),
        ("--prompt it --prompt </s>", ["prompt 2", "'</s>'"]),
        ("--prompt it --prompt <s> --stream", ["prompt 2", "'<s>'"]),
        ("--prompt it --data /nowhere", ["dict.txt", "/nowhere"]),
        ("--prompt it --path /nowhere.pt", ["/nowhere.pt", "no such"]),
        ("--prompt it --device abacus", ["device=abacus"]),
        ("--prompt it --sentencepiece-model /nowhere", ["/nowhere", "sentencepiece"]),
        ("--input /nowhere.txt", ["/nowhere.txt"]),
        (f"--input {os.devnull}", [os.devnull, "no line"]),
        ("--input {tmp_path}/latin1.txt", ["latin1.txt", "utf-8"]),
        ("", ["--prompt", "--input"]),
        ("--prompt it --input -", ["--prompt", "--input"]),
        ("--prompt it --json --stream", ["--json", "--stream"]),
    ],
)
def test_mistakes(t2, tmp_path, capsys, arguments, parts):
    (tmp_path / "latin1.txt").write_bytes(b"\xff\xfe\n")
    words = ["--path", t2.path, "--device", "cpu"]
    words += arguments.format(tmp_path=tmp_path).split()
    command_refuses(main, words, capsys, "fairseq_transnormer generate", *parts)


def test_script(tmp_path):
    """From another folder, with an interpreter that tells what it is given."""
    script = tmp_path / "here/scripts/generate.sh"
    script.parent.mkdir(parents=True)
    shutil.copy(SCRIPTS / script.name, script)
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$PYTHONPATH" "$@"\nexit 7\n')
    python.chmod(0o755)
    done = subprocess.run(
        [script, "--prompt", "it is"],
        cwd=tmp_path,
        env={"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    given = ["-m", "fairseq_transnormer", "generate", "--prompt", "it is"]
    assert done.stdout.splitlines() == [str(tmp_path / "here"), *given]
    assert done.returncode == 7
