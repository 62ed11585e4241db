"""Checkpoints whose reading, or use by fairseq, would run code: it makes a folder."""

import argparse
import cProfile
import json
import os
import pickle
import shutil
import subprocess
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import hydra
import omegaconf
import torch
from fairseq import utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.options import get_training_parser, parse_args_and_arch
from omegaconf import OmegaConf

# fairseq/models/transformer_lm.py: eval(args.character_filters)
EVALUATED = "character_filters"
ARCH = "transformer_lm"


def stock_cfg() -> dict:
    """What fairseq saves of a model whose building evaluates a setting."""
    parser = get_training_parser()
    arguments = ["data", "--task", "language_modeling", "--arch", ARCH]
    arguments += ["--character-embeddings", "--optimizer", "adam"]
    cfg = convert_namespace_to_omegaconf(parse_args_and_arch(parser, arguments))
    return OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)


def stock_state(cfg: Any, args: Any = None) -> dict:
    history = {"optimizer_name": "x", "lr_scheduler_state": {}, "num_updates": 1}
    return {
        "args": args,
        "cfg": cfg,
        "model": {"decoder.embed_tokens.weight": torch.zeros(4, 2)},
        "criterion": None,
        "optimizer_history": [history],
        "task_state": {},
        "extra_state": {"train_iterator": {"epoch": 1}, "val_loss": None},
        "last_optimizer_state": {"state": {}},
    }


class Call:
    """Calls a function when it is unpickled."""

    def __init__(self, function: Callable, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


class Hostile(NamedTuple):
    """write(path, made, cfg): a file that shall make ``made``.

    effect: who makes it: "pickle" when it is read unsafely, "settings" when fairseq
    evaluates what its loader returns; None: nobody known, and it is refused all the
    same.
    """

    write: Callable[[Path, Path, dict], None]
    effect: str | None = None


def code(made: Path) -> str:
    return f"__import__('os').mkdir({str(made)!r})"


def code_without_quotes(made: Path) -> str:
    def spelt(text: str) -> str:
        return "+".join(f"chr({ord(letter)})" for letter in text)

    return f"__import__({spelt('os')}).mkdir({spelt(str(made))})"


CALLS: dict[str, Callable[[str], tuple]] = {
    "os.mkdir": lambda made: (os.mkdir, made),
    "os.system": lambda made: (os.system, f"mkdir {made}"),
    "os.makedirs": lambda made: (os.makedirs, made),
    "eval": lambda made: (eval, code(made)),
    "exec": lambda made: (exec, code(made)),
    "open": lambda made: (open, made, "w"),
    "subprocess": lambda made: (subprocess.check_call, ["mkdir", made]),
    "copytree": lambda made: (shutil.copytree, str(Path(__file__).parent), made),
    "timeit": lambda made: (timeit.timeit, "pass", code(made)),
    "cProfile": lambda made: (cProfile.run, code(made)),
    "map": lambda made: (list, map(os.mkdir, [made])),
    "hydra": lambda made: (
        hydra.utils.instantiate,
        {"_target_": "os.mkdir", "path": made},
    ),
    "fairseq": lambda made: (_fairseqs_eval, code(made)),
}


def _fairseqs_eval(text: str):
    """utils.eval_str_dict, with the eval that fairseq's own code would take."""
    return eval(text, vars(utils))


# where in a checkpoint the call stands
PLACES: dict[str, Callable[[dict, Any], Any]] = {
    "all": lambda state, call: call,
    "a key": lambda state, call: state | {call: 1},
    "an unknown field": lambda state, call: state | {"notes": [call]},
    "cfg": lambda state, call: state | {"cfg": call},
    "cfg.model": lambda state, call: state | {"cfg": state["cfg"] | {"model": call}},
    "args": lambda state, call: state | {"args": argparse.Namespace(data=call)},
    "model": lambda state, call: state | {"model": call},
    "a weight": lambda state, call: state | {"model": {"weight": call}},
    "optimizer_history": lambda state, call: state | {"optimizer_history": [call]},
    "last_optimizer_state": lambda state, call: state | {"last_optimizer_state": call},
    "task_state": lambda state, call: state | {"task_state": call},
    "extra_state": lambda state, call: state | {"extra_state": {"best": call}},
}


def _pickled(call: str, place: str, save: Callable = torch.save) -> Hostile:
    def write(path, made, cfg):
        state = PLACES[place](stock_state(cfg), Call(*CALLS[call](str(made))))
        save(state, path)

    return Hostile(write, "pickle")


def _save_older(state, path):
    torch.save(state, path, _use_new_zipfile_serialization=False)


def _save_plain(protocol: int) -> Callable:
    def save(state, path):
        path.write_bytes(pickle.dumps(state, protocol))

    return save


# what fairseq would evaluate
TEXTS: dict[str, Callable[[Path], str]] = {
    "a call": code,
    "blanks": lambda made: f" \t {code(made)}",
    "a comment": lambda made: f"# text\n{code(made)}",
    "a form feed": lambda made: f"\f{code(made)}",
    "brackets": lambda made: f"[(512, 10, 5)] * 2 + [{code(made)}]",
    "a dict": lambda made: f"{{1: {code(made)}}}",
    "an f-string": lambda made: f'f"""{{{code(made)}}}"""',
    "a lambda": lambda made: f"(lambda: {code(made)})()",
    "a comprehension": lambda made: f"[{code(made)} for _ in [1]]",
    "and": lambda made: f"1 and {code(made)}",
    "a condition": lambda made: f"{code(made)} if 1 else 2",
    "a comparison": lambda made: f"1 < ({code(made)} or 2)",
    "walrus": lambda made: f"(made := {code(made)})",
    "a star": lambda made: f"[*[{code(made)}]]",
    "other letters": lambda made: f"__ｉmport__('os').mkdir({str(made)!r})",
    "no quotes": code_without_quotes,
    "a subscript": lambda made: f"[{code(made)}][0]",
    "depth": lambda made: "(" * 90 + code(made) + ")" * 90,
}


def _setting(text: Callable[[Path], str]) -> Hostile:
    def write(path, made, cfg):
        model = cfg["model"] | {EVALUATED: text(made)}
        torch.save(stock_state(cfg | {"model": model}), path)

    return Hostile(write, "settings")


def _cfg(of: Callable[[dict], Any], effect: str | None = None) -> Hostile:
    """of: what takes the place of a configuration that has code in it."""

    def write(path, made, cfg):
        cfg = cfg | {"model": cfg["model"] | {EVALUATED: code(made)}}
        torch.save(stock_state(of(cfg)), path)

    return Hostile(write, effect)


def _args(text: Callable[[Path], Any], name: str = EVALUATED) -> Hostile:
    """As fairseq before 1.0 saved settings; Hydra reads them."""

    def write(path, made, cfg):
        values = {"arch": ARCH, "task": "language_modeling", "data": "data"}
        values |= {"character_embeddings": True, name: text(made)}
        torch.save(stock_state(None, argparse.Namespace(**values)), path)

    return Hostile(write, "settings")


def _hidden(of: Callable[[str], Any]) -> Hostile:
    """of: a container of code, in a place that fairseq may look at."""

    def write(path, made, cfg):
        model = cfg["model"] | {EVALUATED: of(code(made))}
        torch.save(stock_state(cfg | {"model": model}), path)

    return Hostile(write)


def _backslashes(made: Path) -> str:
    """Two texts and a plus; with one backslash less, a text and a call."""
    return f"'\\\\'+' and {code_without_quotes(made)} #'"


HOSTILE: dict[str, Hostile] = (
    {f"{each} in extra_state": _pickled(each, "extra_state") for each in CALLS}
    | {f"os.mkdir in {place}": _pickled("os.mkdir", place) for place in PLACES}
    | {
        f"{p}, older torch": _pickled("os.mkdir", p, _save_older)
        for p in ("all", "cfg")
    }
    | {
        f"a plain pickle, protocol {protocol}": _pickled(
            "os.mkdir", "extra_state", _save_plain(protocol)
        )
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    }
    | {f"a setting with {name}": _setting(text) for name, text in TEXTS.items()}
    | {
        "cfg as YAML": _cfg(OmegaConf.to_yaml, "settings"),
        "cfg as YAML with a comment": _cfg(
            lambda cfg: "# settings\n" + OmegaConf.to_yaml(cfg), "settings"
        ),
        "cfg as YAML document": _cfg(
            lambda cfg: "---\n" + OmegaConf.to_yaml(cfg), "settings"
        ),
        "cfg as JSON": _cfg(json.dumps, "settings"),
        "cfg as quoted YAML": _cfg(lambda cfg: repr(OmegaConf.to_yaml(cfg))),
        "cfg as bytes": _cfg(lambda cfg: OmegaConf.to_yaml(cfg).encode()),
        "cfg in a list": _cfg(lambda cfg: [cfg]),
        "cfg in a tuple": _cfg(lambda cfg: (OmegaConf.to_yaml(cfg),)),
        "cfg in a ListConfig": _cfg(lambda cfg: omegaconf.ListConfig([cfg])),
        "cfg as a Namespace": _cfg(lambda cfg: argparse.Namespace(**cfg)),
        "cfg as a DictConfig": _cfg(omegaconf.DictConfig, "settings"),
        "cfg as a number": _cfg(lambda cfg: 1),
        "cfg as lines": _cfg(lambda cfg: ["model:", "task:"]),
    }
    | {
        "args with a call": _args(code),
        "args with a call without quotes": _args(code_without_quotes),
        "args with a backslash": _args(_backslashes),
        "args with a backslash and brackets": _args(
            lambda made: f"['\\\\'+' and {code_without_quotes(made)}]#'][0:0]"
        ),
        "args with a backslash in a tuple": _args(
            lambda made: f"('\\\\',' , {code_without_quotes(made)}) #')"
        ),
        "args with a backslash in a sum": _args(
            lambda made: f"'\\\\'+' if {code_without_quotes(made)} else 1 #'"
        ),
    }
    | {
        # other containers: test_safe_loading.py
        "code in quotes": _hidden(repr),
        "code in a list": _hidden(lambda text: [text]),
        "an interpolation": _hidden(lambda text: "${task.data}"),
        "an interpolation of the environment": _hidden(
            lambda text: "${oc.env:HOME}" + text
        ),
    }
)
