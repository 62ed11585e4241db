"""Plans that several processes make are those that one makes."""

import os

import pytest

from fairseq_transnormer.reproduce import command_line
from fairseq_transnormer.reproduce.arguments import parser
from fairseq_transnormer.reproduce.command_line import main
from fairseq_transnormer.reproduce.errors import ReproduceError
from fairseq_transnormer.reproduce.runs.plans import Step
from fairseq_transnormer.reproduce.tables import planning
from fairseq_transnormer.reproduce.tables.definitions import Cell
from fairseq_transnormer.reproduce.tables.jobs import Conditions
from fairseq_transnormer.reproduce.tables.planning import plan_all
from fairseq_transnormer.reproduce.tables.presets import load_preset
from tests.messages import command_refuses, refuses
from tests.paths import CONFIGS, ROOT

from .stand_in import plan

PLANNED_IN = "the process that made the plan"


class Job:
    """Named in the cells; a width below 0 is a mistake."""

    most_devices = None

    def name(self, cell, conditions):
        return f"width{cell.overrides['width']}/seed{conditions.seed}"

    def plan(self, cell, conditions):
        if cell.overrides["width"] < 0:
            raise ReproduceError(f"width={cell.overrides['width']}; allowed: from 0")
        steps = [Step(name, [name]) for name in ("train", *cell.after)]
        made = plan(self.name(cell, conditions), steps)
        made.origin[PLANNED_IN] = os.getpid()
        return made


def cells(*widths, after=(), seed=None):
    return [
        Cell(
            row="row", column="column", job=f"{__name__}:Job", config="none",
            overrides={"width": width}, metric="loss", paper=None,
            after={name: [name] for name in after}, seed=seed,
        )
        for width in widths
    ]  # fmt: skip


@pytest.fixture
def conditions():
    return Conditions(CONFIGS, ROOT, load_preset(CONFIGS, "smoke"))


def test_several_processes_plan_as_one(conditions, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    given = cells(*range(2 * planning.FEWEST)) + cells(3, after=["scores"])
    given += cells(5, seed=7)
    several = plan_all(given, [conditions, conditions.of(2)])
    assert os.getpid() not in {each.origin.pop(PLANNED_IN) for each in several}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    one = plan_all(given, [conditions, conditions.of(2)])
    assert {each.origin.pop(PLANNED_IN) for each in one} == {os.getpid()}
    assert several == one
    assert len({each.name for each in one}) == len(one) == 4 * planning.FEWEST + 1
    (both,) = (each for each in one if each.name == "width3/seed2")
    assert [step.name for step in both.steps] == ["train", "scores"]


@pytest.mark.parametrize("right", [0, 4 * planning.FEWEST])
def test_the_first_mistake_is_told(conditions, right):
    with refuses(ReproduceError, "width=-1", "allowed"):
        plan_all(cells(*range(right), -1, -2), [conditions])


def test_an_option_given_twice_counts_twice():
    words = ["run", "table1", "--set", "a=1", "--rows", "x", "--data", "b=c"]
    given = parser().parse_args([*words, "--set", "d=2", "--rows", "y", "z"])
    assert dict(given.set) == {"a": 1, "d": 2}
    assert given.rows == ["x", "y", "z"] and dict(given.data) == {"b": "c"}
    assert parser().parse_args(words).rows == ["x"]


@pytest.mark.parametrize("seed", ["-1", str(2**32), "x", "1.5"])
def test_seeds_that_numpy_refuses(capsys, seed):
    run = ["run", "table4", "--seeds", seed]
    command_refuses(main, run, capsys, "--seeds", seed, 0, 2**32 - 1)


def test_a_seed_that_is_given_twice_is_one(monkeypatch, capsys, tmp_path):
    seen = []
    monkeypatch.setattr(
        command_line,
        "plan_all",
        lambda cells, given: seen.extend(each.seed for each in given) or [],
    )
    monkeypatch.setattr(command_line.corpora, "foretell", lambda *given: set())
    places = ["--preset", "smoke", "--gpus", "none", "--runs-dir", str(tmp_path)]
    assert main(["run", "table4", "--seeds", *"2112", "--dry-run", *places]) == 0
    assert seen == [2, 1]
