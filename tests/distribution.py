"""How the tests are shared among processes (pytest -n): by files, long ones first.

A file's tests stay together, since its fixtures would else be made in each process. So
do those of folders that share fixtures which train.
"""

import pytest

# of a session's fixtures that take seconds each, and of configurations composed once
TOGETHER = {
    "tests/test_configs.py": "tests/test_configs.py",
    "tests/hf": "tests/inference",
    "tests/inference": "tests/inference",
    "tests/training": "tests/training",
    "tests/workers": "tests/workers",
}
# by seconds, the longest first; what comes last ends when all are at their ends
FIRST = (
    "tests/training",
    "tests/models/test_variants.py",
    "tests/examples",
    "tests/workers",
    "tests/inference",
    "tests/reproduce",
    "tests/fairseq_tools",
    "tests/models/test_adding_a_system.py",
    "tests/test_configs.py",
    "tests/modules/token_mixers",
    "tests/benchmarks",
    "tests/ops/interpreter/test_laws.py",
    "tests/ops/interpreter/verification",
    "tests/ops/interpreter/test_compile.py",
)


def unit_of(nodeid: str) -> str:
    """The tests that one process runs, one after the other: a file or a folder."""
    path = nodeid.partition("::")[0]
    return TOGETHER.get("/".join(path.split("/")[:2]), path)


def in_order_of_length(items: list[pytest.Item]) -> None:
    """Put what takes long first; all else stays as it is."""
    items.sort(key=lambda item: _rank(item.nodeid))


def _rank(nodeid: str) -> int:
    unit = unit_of(nodeid)
    ranks = [rank for rank, name in enumerate(FIRST) if _is_in(unit, name)]
    return ranks[0] if ranks else len(FIRST)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def scheduler(config: pytest.Config, log):
    """xdist's, for units of tests in the order of their collection."""
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    config.option.loadscopereorder = False
    return Units(config, log)
