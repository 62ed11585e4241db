"""Names and paths of command lines."""

from pathlib import Path

import pytest

from fairseq_transnormer.analysis.figures import named_paths
from tests.messages import refuses


def test_a_path_that_there_is_may_have_an_equals_sign(tmp_path):
    """As the runner's folders have it."""
    path = tmp_path / "t1+lr=0.1" / "checkpoint.pt"
    path.parent.mkdir()
    path.touch()
    assert named_paths([str(path)]) == {str(path): path}
    assert named_paths([f"T1={path}"]) == {"T1": path}
    assert named_paths(["T1=no/such"]) == {"T1": Path("no/such")}


@pytest.mark.parametrize("arguments", [["a=x", "a=y"], ["x", "x"]])
def test_a_name_is_given_once(arguments):
    with refuses(ValueError, "names two files"):
        named_paths(arguments)
