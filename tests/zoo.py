"""Tiny checkpoints of fairseq with their exports, each made once in a process."""

import copy
import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import torch
from fairseq import checkpoint_utils, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.models import MODEL_REGISTRY
from fairseq.options import get_training_parser, parse_args_and_arch
from omegaconf import DictConfig, OmegaConf
from torch import nn

import fairseq_transnormer.plugin  # noqa: F401 (registers the models)
from data_prep.folders.binary_folder import gpt2_dictionary
from fairseq_transnormer.checkpoints.export import export_checkpoint
from fairseq_transnormer.inference import TextGenerator
from fairseq_transnormer.plugin import loading
from tests.binary_data import write_binary_data
from tests.inference import models
from tests.inference.problems import dictionary, write_problem
from tests.paths import USER_DIR, gpt2_files

CAUSAL = ("transnormer_t1_tiny", "transnormer_t2_tiny")
ENCODERS = ("roberta_transnormer_t1_tiny", "roberta_transnormer_t2_tiny")
# name -> labels, and what the head sees
HEADS = {"classifier": (("no", "yes", "maybe"), "first"), "regression": ((), "mean")}
MASKED = ("--task", "masked_lm", "--arch", "roberta_transnormer_t2_tiny")
# symbols of the dictionary of what is untrained, special ones counted
WORDS = 44
# trained until texts are no noise; all others are trained a little
UPDATES = {"t1": 40, "t2": 40, "pieces": 60}
SHORT_NAMES = {"t1": CAUSAL[0], "t2": CAUSAL[1], "pieces": CAUSAL[1]}
# fairseq's own decoder
SMALL = ("--decoder-layers", 2, "--decoder-embed-dim", 32)
SMALL += ("--decoder-ffn-embed-dim", 32, "--decoder-attention-heads", 2)


class Trained(NamedTuple):
    """A checkpoint behind fairseq's interface and behind ours."""

    path: str
    data: str
    hub: GeneratorHubInterface
    generator: TextGenerator


class Both(NamedTuple):
    """A model of fairseq, its checkpoint and the folder of its export."""

    model: nn.Module
    checkpoint: Path
    folder: Path


class Texts(NamedTuple):
    """A trained model in our generator, fairseq's and transformers."""

    generator: TextGenerator
    hub: GeneratorHubInterface
    model: nn.Module
    tokenizer: object
    folder: Path


class Made(dict):
    """Values by name, made when they are first asked for, from the same numbers."""

    def __init__(self, make: Callable):
        super().__init__()
        self.make = make

    def __missing__(self, name: str):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self[name] = self.make(name)
        return self[name]


class Zoo:
    """What several folders of tests share, by name.

    Attributes:
        data: "words" and "pieces", sentencepiece with byte fallback.
        checkpoints: paths of what fairseq-train trained: "t1", "t2" and architectures
            on words, "pieces" a T2 on pieces.
        trained: the same, loaded.
        exported: the same in transformers.
        untrained: architectures of ``CAUSAL`` and ``ENCODERS``, ``HEADS``, and "gpt2".
    """

    def __init__(self, root: Path):
        self.root = root
        self.data = Made(self._data)
        self.checkpoints = Made(self._train)
        self.trained = Made(self._load)
        self.exported = Made(self._export)
        self.untrained = Made(self._write)

    def _data(self, name: str) -> Path:
        folder = self.root / name / "data"
        make = models.word_data if name == "words" else models.sentencepiece_data
        make(folder)
        return folder

    def _train(self, name: str) -> Path:
        arch = SHORT_NAMES.get(name, name)
        more = list(SMALL) if arch == "transformer_lm" else []
        if arch.startswith("roberta"):
            more = ["--task", "masked_lm", "--criterion", "masked_lm"]
        data = self.data["pieces" if name == "pieces" else "words"]
        more += ["--max-update", UPDATES.get(name, 15)]
        return models.train(data, self.root / f"trained {name}", arch, *more)

    def _load(self, name: str) -> Trained:
        path, units = self.checkpoints[name], {}
        data = self.data["pieces" if name == "pieces" else "words"]
        if name == "pieces":
            units["bpe"] = "sentencepiece"
            units["sentencepiece_model"] = str(data / "sentencepiece.bpe.model")
        hub = MODEL_REGISTRY[SHORT_NAMES.get(name, name)].from_pretrained(
            str(path.parent), path.name, str(data), **units
        )
        generator = TextGenerator.from_checkpoint(path, device="cpu")
        return Trained(str(path), str(data), hub, generator)

    def _export(self, name: str) -> Texts:
        # each test file skips itself without them
        from transformers import AutoModelForCausalLM, AutoTokenizer

        import fairseq_transnormer.hf  # noqa: F401 (registers the classes)

        folder = self.root / f"exported {name}"
        export_checkpoint(self.checkpoints[name], folder)
        model = AutoModelForCausalLM.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        trained = self.trained[name]
        return Texts(trained.generator, trained.hub, model, tokenizer, folder)

    def _write(self, name: str) -> Both:
        root = self.root / f"untrained {name}"
        checkpoint, model = write(root, name)
        export_checkpoint(checkpoint, root / "out")
        return Both(model, checkpoint, root / "out")


def write(folder: Path, name: str) -> tuple[Path, nn.Module]:
    """A checkpoint in ``folder``, its data in ``folder/data``, and its model.

    name: of a tiny architecture, or of ``HEADS``; "gpt2", an encoder of its units.
    """
    data = folder / "data"
    data.mkdir(parents=True)
    if name == "gpt2":
        gpt2_dictionary().save(str(data / "dict.txt"))
        for each in ("encoder.json", "vocab.bpe"):
            shutil.copyfile(gpt2_files() / each, data / each)
        return save(folder / "checkpoint.pt", data, *MASKED)
    if name in HEADS:
        labels, pooling = HEADS[name]
        write_problem(data, labels=labels, pairs=not labels)
        more = fine_tuning(len(labels) or 1, pooling)
    else:
        lines = [f"w{i} w{i + 1} w{2 * i}" for i in range(20)]
        write_binary_data(data, dictionary(), {"train": lines, "valid": lines})
        task = "masked_lm" if name in ENCODERS else "language_modeling"
        more = ("--task", task, "--arch", name)
    return save(folder / "checkpoint.pt", data, *more)


def fine_tuning(classes: int = 2, pooling: str = "first") -> tuple[str, ...]:
    """The arguments of a T2 with a head; one class is a regression."""
    arguments = ["--task", "sentence_prediction", "--arch", ENCODERS[1]]
    arguments += ["--pooling", pooling, "--num-classes", str(classes)]
    arguments += ["--init-token", "0", "--separator-token", "2"]
    arguments += ["--criterion", "sentence_prediction_metrics"]
    return (*arguments, *(["--regression-target"] if classes == 1 else []))


@functools.cache
def composed(*arguments: str) -> DictConfig:
    """What fairseq-train makes of these arguments; its data are to be filled in."""
    given = ["", "--user-dir", str(USER_DIR), "--optimizer", "adam", *arguments]
    return convert_namespace_to_omegaconf(
        parse_args_and_arch(get_training_parser(), given)
    )


def save(
    path: Path, data: Path, *arguments: str, identity: bool = False
) -> tuple[Path, nn.Module]:
    """A checkpoint of a model that fairseq builds with these arguments.

    identity: it names what belongs to it; earlier versions left that out.
    """
    cfg = copy.deepcopy(composed(*arguments))
    cfg.task.data = str(data)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.dim() < 2:
                parameter += 0.1 * torch.randn_like(parameter)
    state = {
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "args": None,
        "model": model.state_dict(),
        "optimizer_history": [
            {"optimizer_name": "x", "lr_scheduler_state": {}, "num_updates": 1}
        ],
        "extra_state": {"train_iterator": {"epoch": 1}, "val_loss": None},
    }
    if identity:
        state["extra_state"] |= loading.identity(SimpleNamespace(task=task, cfg=cfg))
    checkpoint_utils.torch_persistent_save(state, str(path))
    return path, model
