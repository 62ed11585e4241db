"""From a folder of texts to a model, stage after stage, each done once."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ..data import REPORT
from ..data.whole_files import make_folder, write_json, write_text
from ..training.exit_code import EXIT_RESUMABLE, ended_by
from . import stages
from .baselines import trivial_rules
from .errors import OwnTextError
from .plan import Plan, differences, estimated_tokens, plan_for
from .progress import run_training
from .stages import Run, started

ROOT = Path(__file__).resolve().parents[2]
MADE_BY = "own_text"


@dataclass(frozen=True)
class Options:
    """What the user asks for.

    Attributes:
        folder: the texts.
        dest: where all goes.
        gpus: that train; 0 is the CPU.
        precision: of the training; None is the configuration's.
        dividing: options of ``data_prep split_text``.
        chosen: values of ``Plan``; None where the rule shall choose.
        again: the command, which resumes.
    """

    folder: Path
    dest: Path
    gpus: int
    precision: str | None
    dividing: list[str]
    chosen: Mapping[str, object]
    again: str


class Pipeline:
    """A run in its folder, begun or resumed.

    Args:
        options: the user's.

    Raises:
        OwnTextError: the folders do not do, hold an earlier run of something else, or
            there is too little text.
    """

    def __init__(self, options: Options):
        self.options, self.run = options, Run(options.dest)
        self.environment = {**os.environ}
        paths = [os.environ.get("PYTHONPATH"), str(ROOT)]
        self.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        _check_places(options.folder, options.dest)
        self.began = time.monotonic()
        earlier = _read_record(self.run)
        self.identity = {
            "folder": str(options.folder.resolve()),
            "dividing": options.dividing,
        }
        self.done: dict[str, float] = {}
        if earlier is not None:
            self._check_same(earlier)
            self.done = earlier["done"]
        self.counts = self._counted()
        if earlier is not None:
            self._check_same_texts(earlier["counts"])
        self.plan = self._planned(earlier)

    def tell(self) -> None:
        """Print what is there, and what will be made of it."""
        counts, folder = self.counts, self.options.folder
        skipped = counts["left_out"] or "nothing"
        print(f"{folder}: read {counts['read']}; left out: {skipped}")
        because = f": {counts['reason']}" if counts["reason"] else ""
        print(f"divided by {counts['divided_by']}{because}")
        for name, of_split in counts["splits"].items():
            paragraphs = of_split.get("paragraphs")
            parts = [] if paragraphs is None else [counted(paragraphs, "paragraphs")]
            parts += [
                f"text of {counted(of_split['documents'], 'documents')}",
                f"{of_split['words']:,} words",
                f"{of_split['characters']:,} characters",
            ]
            print(f"  {name:5} {', '.join(parts)}")
        for sentence in counts["warnings"]:
            print(f"warning: {sentence}")
        where = f"{self.options.gpus} GPU" if self.options.gpus else "the CPU"
        print(f"plan, for {where}, in {self.run.dest}:")
        print(self.plan.described(self._tokens()))

    def tell_commands(self) -> None:
        """Print the commands of all stages."""
        run, plan = self.run, self.plan
        for command in (
            stages.splitting(self.options.folder, self._dividing()),
            stages.encoding(run, plan),
            self._training(),
            stages.scoring(run, plan),
            stages.generating(run, ["..."]),
            stages.plotting(run, self._name(), run.curves),
        ):
            print(shlex.join(command))

    def execute(self) -> None:
        """Do what is not done yet.

        Raises:
            OwnTextError: DIR cannot be written, a stage failed, or the training was
                asked to stop.
        """
        try:
            make_folder(self.run.dest, "--dest")
        except ValueError as error:
            raise OwnTextError(str(error)) from error
        self._write_record()
        for name, stage in (
            ("split", self._split),
            ("encode", self._encode),
            ("train", self._train),
            ("evaluate", self._evaluate),
            ("generate", self._generate),
            ("curves", self._draw),
        ):
            self._stage(name, stage)
        print(f"== done ({self._seconds():.0f} s)")
        print(_table(json.loads(self.run.scores.read_text(encoding="utf-8"))))
        print(f"text: {self.run.samples}\ncurves: {self.run.curves}")
        print(f"model: {self.run.model}")

    def _stage(self, name: str, stage: Callable[[], None]) -> None:
        if name in self.done:
            print(f"== {name}: done already, in {self.done[name]:.0f} s")
            return
        print(f"== {name} ({self._seconds():.0f} s)", flush=True)
        began = time.monotonic()
        stage()
        self.done[name] = time.monotonic() - began
        self._write_record()

    def _split(self) -> None:
        # what it says has been told with the plan
        stages.divide(self.options.folder, self._dividing(), self.environment)

    def _encode(self) -> None:
        stages.run(stages.encoding(self.run, self.plan), self.environment)

    def _train(self) -> None:
        code = run_training(
            started(self._training()), self.environment, self.run.log, self.plan.updates
        )
        if code == EXIT_RESUMABLE:
            raise OwnTextError(
                "the training was asked to stop and has written a checkpoint; to "
                f"resume: {self.options.again}",
                code,
            )
        if code:
            raise OwnTextError(
                f"the training was ended by {ended_by(code)}; {self.run.log} has all "
                f"of it; to resume: {self.options.again}",
                1,
            )

    def _evaluate(self) -> None:
        command = stages.scoring(self.run, self.plan)
        rows = stages.json_lines(stages.output_of(command, self.environment))
        rules = trivial_rules(self.run.text, self.run.data)
        write_json(self.run.scores, {"model": rows[-1], "rules": rules})

    def _generate(self) -> None:
        prompts = stages.openings(self.run.text / "test.txt")
        command = stages.generating(self.run, prompts)
        rows = stages.json_lines(stages.output_of(command, self.environment))
        samples = [f"prompt: {row['prompt']}\n{row['text']}\n" for row in rows]
        write_text(self.run.samples, "\n".join(samples))
        print(self.run.samples.read_text(encoding="utf-8"))

    def _draw(self) -> None:
        part = self.run.curves.with_suffix(".part.png")
        stages.output_of(
            stages.plotting(self.run, self._name(), part), self.environment
        )
        os.replace(part, self.run.curves)

    def _dividing(self) -> list[str]:
        return [*self.options.dividing, "--dest", str(self.run.text)]

    def _training(self) -> list[str]:
        return stages.training(
            self.run, self.plan, self.options.gpus, self.options.precision
        )

    def _counted(self) -> dict:
        options = [*self.options.dividing, "--count"]
        return json.loads(stages.divide(self.options.folder, options, self.environment))

    def _planned(self, earlier: dict | None) -> Plan:
        """The plan of the earlier run, or that of the rule; refuses another one."""
        train = self.counts["splits"]["train"]
        if earlier is None:
            return plan_for(train, self.options.gpus > 0, self.options.chosen)
        chosen = {k: v for k, v in self.options.chosen.items() if v is not None}
        plan = Plan(**{**earlier["plan"], **chosen})
        different = differences(earlier["plan"], plan)
        if different:
            raise OwnTextError(
                f"--dest {self.run.dest}: begun with other values "
                f"({'; '.join(different)}); allowed: those, or another --dest"
            )
        if plan.updates != earlier["plan"]["updates"]:
            for name in ("train", "evaluate", "generate", "curves"):
                self.done.pop(name, None)
        return plan

    def _check_same(self, earlier: dict) -> None:
        for name, now in self.identity.items():
            if earlier[name] != now:
                raise OwnTextError(
                    f"--dest {self.run.dest}: holds a run of {name} {earlier[name]}, "
                    f"not of {now}; allowed: another --dest"
                )

    def _check_same_texts(self, earlier: dict) -> None:
        if earlier["content"] != self.counts["content"]:
            raise OwnTextError(
                f"{self.options.folder}: other texts than when {self.run.dest} was "
                "begun; allowed: the same files, or another --dest"
            )

    def _tokens(self) -> int:
        """Of the train split: counted once it is encoded, else estimated."""
        report = self.run.data / REPORT
        if report.is_file():
            return json.loads(report.read_text())["splits"]["train"]["tokens"]
        train = self.counts["splits"]["train"]
        return estimated_tokens(train["characters"], train["different_characters"])

    def _write_record(self) -> None:
        content = {"made_by": MADE_BY, **self.identity, "plan": asdict(self.plan)}
        content |= {"counts": self.counts, "done": self.done}
        write_json(self.run.record, content)

    def _name(self) -> str:
        return self.run.dest.resolve().name.replace("=", "_")

    def _seconds(self) -> float:
        return time.monotonic() - self.began


def counted(number: int, things: str) -> str:
    """1 document, 2 documents."""
    return f"{number:,} {things.removesuffix('s') if number == 1 else things}"


def _check_places(folder: Path, dest: Path) -> None:
    if not (ROOT / "data_prep").is_dir():
        raise OwnTextError(
            f"{ROOT} has no data_prep; allowed: a clone of the repository, installed "
            "with pip install -e"
        )
    if not folder.exists():
        raise OwnTextError(
            f"{folder}: no such folder; allowed: a folder of text files, or a file"
        )
    if "${" in str(dest.resolve()):
        raise OwnTextError(
            f"--dest {dest}: Hydra would look ${{ up; allowed: a path without it"
        )
    there, here = folder.resolve(), dest.resolve()
    if here == there or here.is_relative_to(there) or there.is_relative_to(here):
        raise OwnTextError(
            f"--dest {dest} and {folder} lie in one another, and what is made would be "
            "read as text; allowed: a folder elsewhere"
        )


def _read_record(run: Run) -> dict | None:
    """What an earlier run noted; None where DEST is new."""
    if not run.dest.exists() or (run.dest.is_dir() and not any(run.dest.iterdir())):
        return None
    try:
        content = json.loads(run.record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict) or content.get("made_by") != MADE_BY:
        raise OwnTextError(
            f"--dest {run.dest}: exists and is no run of own_text; allowed: a new "
            "folder, or that of an earlier run"
        )
    return content


def _table(scores: dict) -> str:
    """The model beside the trivial rules."""
    rows = [("", "bits a byte", "perplexity a token")]
    for name, found in [*scores["rules"].items(), ("T2", scores["model"])]:
        perplexity = found.get("perplexity")
        shown = "-" if perplexity is None else f"{perplexity:,.1f}"
        rows.append((name, f"{found['bits_per_byte']:.3f}", shown))
    lines = [f"| {a:14} | {b:>11} | {c:>18} |" for a, b, c in rows]
    lines.insert(1, "|---|--:|--:|")
    model, rules = scores["model"], scores["rules"]
    better = [
        name
        for name in ("unigram", "bigram")
        if rules.get(name, model)["bits_per_byte"] < model["bits_per_byte"]
    ]
    if better:
        lines.append(
            f"The {better[-1]} is better than the model, which has learned too little: "
            "more --updates, or more text, may help"
        )
    return "\n".join(
        [
            f"test text: {model['tokens']:,} tokens, {model['words']:,} words, "
            f"{model['bytes']:,} bytes; {model['context']}",
            *lines,
        ]
    )
