"""Benchmarks write over their own files, and leave all others alone."""

import json
import os

import pytest

from benchmarks.harness import results
from benchmarks.harness.command_line import benchmark_parser
from benchmarks.report import command as report
from benchmarks.report import page
from benchmarks.training import compare_models
from tests.messages import assert_names, refuses

RUN = {
    "benchmark": "kernels",
    "command": "python -m benchmarks kernels",
    "environment": {},
    "settings": {},
    "measurements": [],
}
FOREIGN = ['{"chapters": 3}', "[]", "chapter one", "[" * 100_000, ""]


@pytest.mark.parametrize("content", FOREIGN, ids=range(len(FOREIGN)))
def test_another_file_is_refused_before_measuring(tmp_path, capsys, content):
    path = tmp_path / "thesis.json"
    path.write_text(content)
    with refuses(ValueError, path):
        results.Record(path, **RUN)
    with refuses(ValueError, path):
        results.write(path, **RUN)
    parsers = {
        "--output": benchmark_parser("kernels", "").parse_args,
        "--out": compare_models.main,
    }
    for option, parse in parsers.items():
        with pytest.raises(SystemExit):
            parse(
                [option, str(path), "--data", "x"]
                if option == "--out"
                else [option, str(path)]
            )
        assert_names(capsys.readouterr().err, option, path)
    assert path.read_text() == content


def test_an_earlier_run_is_replaced(tmp_path):
    path = tmp_path / "kernels.json"
    (tmp_path / "kernels.json.part").write_text("mine")
    for complete in (False, True):
        results.write(path, **RUN, complete=complete)
        assert results.read(path)["complete"] == complete
    assert sorted(os.listdir(tmp_path)) == ["kernels.json", "kernels.json.part"]
    assert (tmp_path / "kernels.json.part").read_text() == "mine"


def test_a_page_of_somebody_else_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(page, "section", lambda run, image: "a section")
    readme = tmp_path / "README.md"
    readme.write_text("# My results\n")
    results.write(tmp_path / "kernels.json", **RUN)
    with pytest.raises(SystemExit):
        report.main(["--folder", str(tmp_path)])
    assert_names(capsys.readouterr().err, readme)
    assert readme.read_text() == "# My results\n"
    results.write_page(tmp_path / "new.md", "# Title\n\none\n")
    results.write_page(tmp_path / "new.md", "# Title\n\ntwo\n")
    assert (tmp_path / "new.md").read_text().endswith("two\n")
    json.loads((tmp_path / "kernels.json").read_text())
