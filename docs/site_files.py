"""Which files the site has, a hook of mkdocs.

mkdocs takes the pages of one folder; these are in several, and link to each other, to
pictures, raw figures and code by their places in the repository. So each file of the
site has the place that it has there: all pages, and the files that they link to.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES = (
    "README.md",
    "docs/*.md",
    "configs/README.md",
    "examples/*/README.md",
    "results/**/*.md",
)
STYLES = "docs/*.css"
# [text](target) and [text](target#anchor), the target in the repository
LINK = re.compile(r"\]\(([^)#:\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The theme's files, and those of the repository."""
    root = Path(config.config_file_path).parent
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    for path in sorted(_of_the_repository(root)):
        name = path.relative_to(root).as_posix()
        files.append(File(name, str(root), config.site_dir, config.use_directory_urls))
    return files


def _of_the_repository(root: Path) -> set[Path]:
    pages = {path for pattern in PAGES for path in root.glob(pattern)}
    linked = {
        (page.parent / target).resolve()
        for page in pages
        for target in LINK.findall(page.read_text(encoding="utf-8"))
    }
    # a link to what is no file is left to mkdocs, which reports it
    linked = {path for path in linked if path.is_file() and path.is_relative_to(root)}
    return pages | linked | {*root.glob(STYLES)}
