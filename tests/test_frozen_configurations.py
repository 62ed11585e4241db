"""Every configuration has the values that it had before values had one home.

The file has every key, defaults of fairseq and of the models included: a default that
moves changes no training unnoticed. What is changed on purpose is changed there too.
"""

import functools
import json

import pytest

from tests.paths import ROOT, TESTS
from tests.resolved_configs import flattened, hydra_config

FROZEN = json.loads((TESTS / "frozen_configurations.json").read_text())
ABSENT = "(absent)"


@functools.cache
def frozen(name: str) -> dict:
    """All values of a configuration; the file has what differs from its primary's."""
    primary = FROZEN["bases"][name.split()[0]]
    if name == "alm":
        return FROZEN["changes"]["alm"]
    values = frozen("alm" if name == primary else primary) | FROZEN["changes"][name]
    return {key: value for key, value in values.items() if value != ABSENT}


def cases():
    """All; slow are those whose files others have, too."""
    for name in sorted(FROZEN["changes"]):
        again = name.startswith(("finetune model", "lra lra")) or "run=" in name
        yield pytest.param(name, marks=[pytest.mark.slow] if again else [])


@pytest.mark.parametrize("name", list(cases()))
def test_values_are_as_before(name):
    primary, *choices = name.split()
    # no primary has a machine of its own
    choices = [f"+{c}" if c.startswith("machine=") else c for c in choices]
    plain = json.loads(
        json.dumps(flattened(hydra_config(primary, *choices)), default=str)
    )
    now = {
        key: value.replace(str(ROOT), "ROOT") if isinstance(value, str) else value
        for key, value in plain.items()
    }
    expected = frozen(name)
    assert {key: now.get(key, ABSENT) for key in expected} == expected
    assert now.keys() == expected.keys()
