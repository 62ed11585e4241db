import json
import shutil
import subprocess

import numpy as np
import pytest

from fairseq_transnormer.analysis.frequency_baselines import baselines, masked_baseline
from fairseq_transnormer.data.binary_data import read_binary_data
from tests.commands import command
from tests.data_prep.commands import text
from tests.inference.models import sentences
from tests.messages import assert_names, command_refuses

from ..tiny_data import write_tiny_data

main = command("analyse", "frequency_baselines")


def test_equals_the_definition_counted_token_by_token():
    numbers = np.random.default_rng(0)
    train, text, size = numbers.integers(0, 9, 500), numbers.integers(0, 11, 80), 11
    train, text = list(train), list(text)
    single, pair = [], []
    for before, after in zip(text, text[1:], strict=False):
        p = (train.count(after) + 0.5) / (len(train) + size / 2)
        together = sum(
            both == (before, after) for both in zip(train, train[1:], strict=False)
        )
        single.append(p)
        pair.append((together + 5 * p) / (train[:-1].count(before) + 5))
    found = baselines(np.array(train), np.array(text), size)
    assert found["unigram"] == pytest.approx(np.prod(single) ** (-1 / len(single)))
    assert found["bigram"] == pytest.approx(np.prod(pair) ** (-1 / len(pair)))


def test_the_masked_rule_is_that_of_counting_all_that_may_be_shown():
    """Bayes' rule over every token and everything it may be shown as; <mask> last."""
    numbers = np.random.default_rng(3)
    train, text, size = numbers.integers(2, 9, 300), numbers.integers(2, 10, 40), 10
    keep, change = 0.1, 0.2
    prior = (np.bincount(train, minlength=size) + 0.5) / (len(train) + size / 2)
    shown = np.zeros((size, size + 1))  # of each token, as what it is shown
    shown[:, size] = 1 - keep - change
    shown[range(size), range(size)] = keep
    shown[:, 4:] += change / (size + 1 - 4)
    assert shown.sum(1) == pytest.approx(np.ones(size))
    together = prior[:, None] * shown
    posterior = together / together.sum(0)
    nats = -(shown * np.log(np.where(shown > 0, posterior, 1))).sum(1)
    found = masked_baseline(train, text, size, keep, change)
    assert found == pytest.approx(np.exp(nats[text].mean()), rel=1e-12)
    nearly = masked_baseline(train, text, size, 1e-9, 1e-9)
    of_all = np.exp(-np.log(prior[text]).mean())
    assert nearly == pytest.approx(of_all, rel=1e-6)


def test_command_reads_binarised_text(tmp_path, capsys):
    data = write_tiny_data(tmp_path / "data")
    target = tmp_path / "found.json"
    assert main([data, "--output", target]) == 0
    record = json.loads(target.read_text())
    assert (record["tokens"], record["dictionary"]) == (30 * 21, 64)
    # words are drawn evenly: neither knows more than where a line of 20 ends
    assert 50 < record["unigram"] < 64 and record["masked"] < record["unigram"]
    assert f"{record['bigram']:.2f}" in capsys.readouterr().out


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A text whose test lines stand in train, and its words as data."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "text").mkdir()
    for name, count in (("train", 300), ("test", 40)):
        lines = [f"{line} {i % 7}" for i, line in enumerate(sentences(count))]
        (folder / f"text/{name}.txt").write_text("\n".join(lines) + "\n")
    words = ["--dest", folder / "data", "--tokenizer", "word"]
    for split, name in (("train", "train"), ("valid", "test"), ("test", "test")):
        words += [f"--{split}", folder / f"text/{name}.txt"]
    assert text([str(word) for word in words]) == 0
    return folder


def test_bits_a_byte_beside_a_model(prepared, tmp_path, capsys):
    score, target = tmp_path / "score.jsonl", tmp_path / "found.json"
    # a name with an end of line of its own
    size = (prepared / "text/test.txt").stat().st_size
    model = {"input": "a\u2028b", "perplexity": 1e6, "bits_per_byte": 7.5}
    count = read_binary_data(prepared / "data/test").tokens
    model |= {"bytes": size, "tokens": count, "log_prob": -9.0}
    score.write_text('{"line": 1}\n' + json.dumps(model, ensure_ascii=False) + "\n")
    words = [prepared / "data", "--split", "test", "--text", prepared / "text"]
    words += ["--score", score, "--output", target]
    assert main(words) == 0
    rules = json.loads(target.read_text())["rules"]
    for name in ("unigram", "bigram"):
        bits = np.log2(rules[name]["perplexity"]) * count / size
        assert rules[name]["bits_per_byte"] == pytest.approx(bits)
    packed = subprocess.run(
        ["xz", "-9e", "--stdout", prepared / "text/test.txt"], capture_output=True
    )
    if packed.returncode == 0:
        bits = 8 * len(packed.stdout) / size
        assert rules["xz"]["bits_per_byte"] == pytest.approx(bits, abs=0.1)
    xz, after = (rules[name]["bits_per_byte"] for name in ("xz", "xz after train"))
    assert after < 0.3 * xz < 8
    shown = capsys.readouterr().out
    assert f"| bigram | {rules['bigram']['bits_per_byte']:.3f} |" in shown
    assert "| model | 7.500 | 1,000,000.00 |" in shown
    assert_names(shown, "bigram is better than the model")
    command_refuses(main, [*words, "--tokens", 200], capsys, "--tokens", "whole split")
    # a masked model's, which the bigram says nothing of
    masked = model | {"tokens": count - 40}
    del masked["log_prob"]
    score.write_text(json.dumps(masked))
    assert main(words) == 0 and "better than" not in capsys.readouterr().out
    # the score of another text, another text, and no score
    score.write_text(json.dumps(model | {"tokens": count - 40}))
    command_refuses(main, words, capsys, score, count - 40, count)
    score.write_text(json.dumps({"tokens": count}))
    command_refuses(main, words, capsys, score, "score --json")
    score.write_text(json.dumps(model | {"bytes": size - 1}))
    command_refuses(main, words, capsys, score, size - 1, size)
    shutil.copytree(prepared / "text", tmp_path / "text")
    with (tmp_path / "text/test.txt").open("a") as file:
        file.write("one more\n")
    words[words.index(prepared / "text")] = tmp_path / "text"
    command_refuses(main, words, capsys, tmp_path / "text/test.txt", 41, 40)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--split", "test"], ["test.idx", "No such file"]),
        (["--tokens", "1"], ["2 tokens", 1]),
    ],
)
def test_what_cannot_be_counted_is_named(tmp_path, capsys, arguments, parts):
    data = write_tiny_data(tmp_path / "data")
    command_refuses(main, [data, *arguments], capsys, *parts)
