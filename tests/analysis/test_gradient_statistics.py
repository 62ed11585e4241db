"""Table 2's number, from series whose deviation is known."""

import json

import numpy
import pytest

from fairseq_transnormer.analysis.gradient_statistics import (
    norm_of,
    read_gradient_series,
    summarise,
)
from tests.commands import command
from tests.messages import command_refuses, refuses

main = command("analyse", "gradient_statistics")

PREFIX = "decoder.model.stack.layers."
SIZES = {
    "decoder.model.embed_tokens.weight": 4,
    f"{PREFIX}0.attention.q_proj.weight": 2,
    f"{PREFIX}0.attention.out_proj.weight": 2,
    f"{PREFIX}1.attention.q_proj.weight": 2,
    "encoder.classification_heads.x.out_proj.weight": 2,
    f"{PREFIX}1.feed_forward.out_proj.weight": 2,
}


def write_series(path, norms, first_update=1, mean=0.0, **of_each):
    rows = [{"parameters": SIZES}] + [
        {"update": first_update + i, "norm": row, "mean": [mean] * len(row)}
        | {key: values[i] for key, values in of_each.items()}
        for i, row in enumerate(norms)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_deviations_of_norms(tmp_path):
    norms = [[3, 0, 4, 0, 0, 0], [6, 8, 0, 0, 0, 0]]
    series = read_gradient_series(write_series(tmp_path / "file", norms))
    summary = summarise(series)
    # norms 5 and 10 of the whole: mean 7.5, standard deviation 2.5
    assert summary["all_parameters"] == pytest.approx(1 / 3)
    # 4 and 8 of the attentions', 0 and 8 of the queries'
    assert summary["attention"] == pytest.approx(1 / 3)
    assert (summary["query"], summary["output"]) == pytest.approx((1, 1))
    assert summary["key"] is summary["value"] is None
    # 3 and 6, 0 and 8, 4 and 0
    assert summary["mean_over_tensors"] == pytest.approx((1 / 3 + 1 + 1) / 3)
    assert (summary["updates"], summary["missing_updates"]) == (2, 0)


def test_heads_and_feed_forward_networks_are_no_attention(tmp_path):
    norms = [[1, 1, 2, 3, 9, 0], [1, 3, 2, 3, 1, 9]]
    series = read_gradient_series(write_series(tmp_path / "file", norms))
    assert numpy.allclose(norm_of(series, "classification"), [9, 1])
    assert summarise(series)["output"] == 0


def test_some_of_the_updates(tmp_path, capsys):
    path = write_series(tmp_path / "file", [[n] * 6 for n in (9, 1, 3, 7)], 5)
    chosen = read_gradient_series(path).loc[6:7]
    assert chosen.index.tolist() == [6, 7]
    assert summarise(chosen)["all_parameters"] == pytest.approx(0.5)
    command_refuses(main, [path, "--first", 9], capsys, "from 9", path)


def test_updates_of_long_sequences(tmp_path, capsys):
    path, norms = tmp_path / "file", [[n] * 6 for n in (1, 90, 3)]
    write_series(path, norms, sequences=[2, 2, 1], tokens=[20, 19, 10])
    assert read_gradient_series(path, 10).index.tolist() == [1, 3]
    command_refuses(main, [path, "--shortest", 11], capsys, "shortest=11", path)
    write_series(path, norms)
    command_refuses(main, [path, "--shortest", 1], capsys, "lengths", path)


def test_missing_updates_and_a_half_line(tmp_path):
    path = write_series(tmp_path / "file", [[1] * 6] * 4)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], *lines[4:]]) + lines[1][:30])
    summary = summarise(read_gradient_series(path))
    assert (summary["updates"], summary["missing_updates"]) == (2, 2)


def test_of_two_lines_of_an_update_the_later_counts(tmp_path):
    path = write_series(tmp_path / "file", [[1] * 6, [2] * 6, [9] * 6])
    again = write_series(tmp_path / "again", [[4] * 6, [3] * 6], first_update=2)
    path.write_text(path.read_text() + again.read_text())
    series = read_gradient_series(path)
    assert series.index.tolist() == [1, 2, 3]
    assert series.iloc[:, 0].tolist() == [1, 4, 3]
    assert summarise(series)["missing_updates"] == 0
    other = again.read_text().replace('"parameters": {', '"parameters": {"more": 1, ')
    path.write_text(path.read_text() + other)
    with refuses(ValueError, path, "two models"):
        read_gradient_series(path)


@pytest.mark.parametrize("text", ["", '{"parameters": {}}\n'])
def test_files_without_an_update_are_refused(text, tmp_path):
    path = tmp_path / "file"
    path.write_text(text)
    with refuses(ValueError, path, "gradients", "gradient_statistics"):
        read_gradient_series(path)


def test_command_prints_numbers_and_writes_files(tmp_path, capsys):
    path = write_series(tmp_path / "a", [[3, 0, 4, 0, 0, 0], [6, 8, 0, 0, 0, 0]])
    other = write_series(tmp_path / "b", [[1] * 6] * 3)
    arguments = [f"T2={path}", f"vanilla={other}", "--plot", tmp_path / "p.png"]
    arguments += ["--output", tmp_path / "numbers.json"]
    assert main(arguments) == 0
    table = capsys.readouterr().out.splitlines()
    row = next(line for line in table if "all_parameters" in line)
    assert [cell.strip() for cell in row.split("|")[2:4]] == ["0.3333", "0.0000"]
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert numbers["T2"]["all_parameters"] == pytest.approx(1 / 3)
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
