"""``python -m fairseq_transnormer score``: what it prints, and what it refuses."""

import json
import os
import sys

import pytest

from fairseq_transnormer.checkpoints.identity import weights_fingerprint
from fairseq_transnormer.inference import TextScorer
from tests.commands import command
from tests.inference.models import sentences
from tests.messages import assert_names

main = command("score")


@pytest.fixture
def text_file(tmp_path):
    """Lines as the models know them, blank ones and an unknown word among them."""
    lines = sentences(23)
    lines[4:4] = [""]
    lines[11:11] = ["", "the xyzzy river crosses"]
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}{os.linesep}" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def path(zoo):
    return zoo.checkpoints["t2"]


@pytest.fixture
def run(capsys, path):
    """The command; exit status, stdout, stderr."""

    def run(*arguments):
        words = ["--path", path, "--device", "cpu", *arguments]
        status = main(words)
        return status, *capsys.readouterr()

    return run


def rows(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


def test_json_of_lines_and_their_sum(run, path, text_file):
    status, out, err = run("--input", text_file, "--by", "line", "--json")
    *found, total = rows(out)
    lines = text_file.read_text().splitlines()
    scores = TextScorer.from_checkpoint(path, device="cpu").score(lines)
    assert status == 0 and len(found) == len(lines) > 24
    assert [row["line"] for row in found] == list(range(1, len(lines) + 1))
    # as fairseq-eval-lm, which predicts the end of a blank line, too
    assert total["lines"] == len(lines) == lines.count("") + 24
    for row, score in zip(found, scores, strict=True):
        assert row["input"] == str(text_file)
        for name, value in score.as_dict().items():
            assert row[name] == pytest.approx(value, rel=1e-6), name
    assert total["total"] is True
    assert total["weights"] == weights_fingerprint(path)
    assert_names(total["context"], "windows of 64 tokens")
    for name in ("log_prob", "tokens", "words", "bytes", "unknown"):
        assert total[name] == pytest.approx(sum(row[name] for row in found))
    assert total["unknown"] == 1
    assert_names(err, "1 of", "<unk>")


def test_documents_lie_between_blank_lines(run, text_file):
    _, out, _ = run("--input", text_file, "--by", "document", "--json")
    *found, total = rows(out)
    assert [(row["line"], row["lines"]) for row in found] == [(1, 4), (6, 6), (13, 14)]
    _, out, _ = run("--input", text_file, "--by", "document", "--json", "--stream")
    for row, alone in zip(rows(out), [*found, total], strict=True):
        assert row["log_prob"] == pytest.approx(alone["log_prob"], rel=1e-6)
    _, out, _ = run("--input", text_file, "--json")
    whole = rows(out)[0]
    # the blank lines are tokens of the file, and not of its documents
    assert whole["tokens"] == total["tokens"] + 2
    assert whole["bytes"] == len(text_file.read_bytes())


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_stdin_is_read_as_a_file(run, monkeypatch, tmp_path, end):
    """Its lines' ends, UTF-8 whatever the locale, and no byte order mark."""
    path = tmp_path / "text.txt"
    path.write_text("the river\n\nit €\n", encoding="utf-8-sig", newline=end)
    given = ("--by", "line", "--stream", "--json")
    with path.open(newline="", encoding="latin-1") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        found = rows(run("--input", "-", *given)[1])
    expected = rows(run("--input", path, *given)[1])
    assert [row["tokens"] for row in found] == [3, 1, 3, 7]
    assert found == [
        each | ({"input": "-"} if "input" in each else {}) for each in expected
    ]
    assert found[-1]["bytes"] == len("the river\n\nit €\n".encode())
    assert not found[-1]["unknown"]


def test_masked_models_have_pseudo_log_likelihoods(run, zoo, text_file):
    path = zoo.checkpoints["roberta_transnormer_t2_tiny"]
    _, out, _ = run("--path", path, "--input", text_file, "--json", "--by", "line")
    total = rows(out)[-1]
    assert total["tokens"] == total["words"] and "log_prob" not in total
    assert total["pseudo_log_likelihood"] < 0
    assert_names(total["context"], "windows of 64 tokens")
