"""Word-level models of both variants."""

import pytest


@pytest.fixture(params=["t1", "t2"])
def trained(request):
    return request.getfixturevalue(request.param)
