"""The pages as a site: built whole, and not with links that lead nowhere."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from tests.paths import ROOT


def test_the_site_has_pages_pictures_and_loads_nothing_from_elsewhere(tmp_path):
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path)))
    start = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert 'href="docs/install/"' in start
    assert 'src="results/benchmarks/token_cost_cpu.png"' in start
    assert (tmp_path / "results/benchmarks/token_cost_cpu.png").is_file()
    assert (tmp_path / "docs/site.css").is_file()
    assert '<span class="kn">import</span>' in start  # coloured without a script
    assert (tmp_path / "CITATION.cff").is_file()  # a page links to it
    for page in tmp_path.rglob("*.html"):
        loads = r"<(?:script|link|img)[^>]*(?:src|href)=\"(?:https?:)?//[^\"]*"
        assert not re.findall(loads, page.read_text(encoding="utf-8")), page
    found = (tmp_path / "search/search_index.json").read_text(encoding="utf-8")
    assert "docs/kernels/" in found and "results/tables/small/" in found


@pytest.fixture
def small_site(tmp_path, caplog) -> Path:
    """Two pages with the project's settings; where they are."""
    # as its command sets it: fairseq's tests may have left another level
    caplog.set_level("INFO", "mkdocs")
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    settings |= {"nav": ["README.md", "docs/one.md"], "watch": []}
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    shutil.copy(ROOT / "docs/site_files.py", tmp_path / "docs")
    (tmp_path / "README.md").write_text("# A\n\n[one](docs/one.md#there)\n")
    (tmp_path / "docs/one.md").write_text("# One\n\n## There\n\n[A](../README.md)\n")
    return tmp_path


def built(folder: Path) -> None:
    build(load_config(str(folder / "mkdocs.yml")))


def test_two_pages(small_site):
    built(small_site)
    assert (small_site / "site/docs/one/index.html").is_file()


@pytest.mark.parametrize(
    "page, text",
    [
        ("docs/one.md", "# One\n\n## There\n\n[none](none.md)\n"),
        ("docs/one.md", "# One\n\n## Elsewhere\n"),
        ("docs/one.md", "# One\n\n## There\n\n![none](../results/none.png)\n"),
        ("docs/two.md", "# Two, which no navigation has\n"),
    ],
    ids=["page", "anchor", "picture", "navigation"],
)
def test_what_leads_nowhere_is_an_error(small_site, page, text):
    (small_site / page).write_text(text, encoding="utf-8")
    with pytest.raises(Abort):
        built(small_site)
