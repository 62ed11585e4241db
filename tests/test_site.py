"""The pages as a site: built whole, and not with links that lead nowhere."""

import re

from mkdocs.commands.build import build
from mkdocs.config import load_config

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
