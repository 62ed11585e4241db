"""Reports without their pictures, which take half a second each."""

import pytest

from benchmarks.report import page


@pytest.fixture(autouse=True)
def undrawn(request, monkeypatch):
    """A file in the place of each picture, but for tests of "drawn"."""
    if "drawn" not in request.fixturenames:
        png = b"\x89PNG"
        monkeypatch.setattr(page, "draw", lambda _, __, path: path.write_bytes(png))


@pytest.fixture
def drawn():
    """For a test whose report has its pictures."""
