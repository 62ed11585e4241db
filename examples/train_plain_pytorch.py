"""Trains the paper's language model in plain PyTorch: one file, no fairseq.

    python examples/train_plain_pytorch.py DATA --save-dir DIR --cpu
    torchrun --nproc-per-node 8 examples/train_plain_pytorch.py DATA --save-dir DIR

The defaults are the paper's Table 13 on one GPU: an update has batch_size * update_freq
* processes = 128 sequences. Weights, batches, dropout, updates and losses are those of
fairseq-train with the same settings. The same command again resumes from
checkpoint_last.pt. docs/train.md lists the commands that read this checkpoint.
"""

import argparse
import math
import os
import sys
import time
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from fairseq_transnormer import modules
from fairseq_transnormer.checkpoints.identity import DATA_KEY, UNITS_KEY
from fairseq_transnormer.checkpoints.identity import KEY as IDENTITY
from fairseq_transnormer.checkpoints.safe_loading import read_checkpoint
from fairseq_transnormer.data.fingerprints import split_fingerprint
from fairseq_transnormer.data.subword_files import (
    dictionary_sha256,
    dictionary_symbols,
    subword_sha256,
)
from fairseq_transnormer.data.token_blocks import TokenBlocks
from fairseq_transnormer.data.training_records import append_record, put_earlier_aside
from fairseq_transnormer.data.whole_files import make_folder, write_whole
from fairseq_transnormer.modules.options import TRAINING_ONLY

T1, T2 = modules.LanguageModelT1Config, modules.LanguageModelT2Config
ARCHITECTURES = {"transnormer_t1": T1, "transnormer_t2": T2}
MODEL = "decoder.model."  # prefix of this model in fairseq's checkpoints
BETAS, EPS = (0.9, 0.98), 1e-8
LEAST = sys.float_info.min  # above 0
SETTINGS = {  # name -> least, default, whose type it has, help
    "tokens_per_sample": (1, 512, "length of a sequence"),
    "batch_size": (1, 16, "sequences per batch and process"),
    "update_freq": (1, 8, "batches per process and update"),
    "lr": (LEAST, 5e-4, "learning rate after the warm-up"),
    "warmup_updates": (1, 8000, "updates of the linear warm-up"),
    "warmup_init_lr": (0, 1e-7, "learning rate at its start"),
    "weight_decay": (0, 0.01, "decoupled, as AdamW's"),
    "clip_norm": (0, 0.0, "limit of the gradient norm; 0: none"),
    "seed": (0, 1, "of weights, batches and dropout"),
}
SCHEDULE = {  # a run may resume with other values of these
    "max_update": (1, 100_000, "updates of the run"),
    "log_interval": (1, 100, "updates between lines of the log"),
    "save_interval_updates": (1, 1000, "between checkpoints"),
}


def parse() -> tuple[argparse.Namespace, T2]:
    """Settings and model; the fields of its configuration are options, too."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, help="folder that data_prep made")
    parser.add_argument("--save-dir", type=Path, required=True, help="folder to write")
    parser.add_argument("--arch", choices=ARCHITECTURES, default="transnormer_t2")
    parser.add_argument("--cpu", action="store_true", help="train on the CPU")
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    for name, (_, default, text) in (SETTINGS | SCHEDULE).items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=type(default), default=default, help=text)
    for each in fields(T2):
        kind = str if issubclass(each.type, str) else each.type  # T2 checks names
        kind = {"action": "store_true"} if kind is bool else {"type": kind}
        option, text = f"--{each.name.replace('_', '-')}", each.metadata["help"]
        parser.add_argument(option, default=argparse.SUPPRESS, help=text, **kind)
    args = parser.parse_args()
    for name, (least, *_) in (SETTINGS | SCHEDULE).items():
        if not least <= (value := vars(args)[name]) < math.inf:
            allowed = "above 0" if least == LEAST else f"from {least}"
            parser.error(f"{name}={value}; allowed: {allowed}")
    given = {f.name: vars(args)[f.name] for f in fields(T2) if f.name in args}
    config = ARCHITECTURES[args.arch](**given)
    if not (args.cpu or torch.cuda.is_available()):
        raise ValueError("torch finds no GPU on this machine; allowed here: --cpu")
    return args, config


class Trainer:
    """A model, its optimizer and its data, after ``updates`` updates."""

    def __init__(self, args: argparse.Namespace, config: T2):
        self.args, self.updates = args, 0
        self.sums = np.zeros(4)  # of an interval of the log
        self.rank = int(os.environ.get("RANK", 0))
        self.workers = int(os.environ.get("WORLD_SIZE", 1))
        self.device = torch.device("cpu" if args.cpu else "cuda")
        if not args.cpu:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        if self.workers > 1:
            dist.init_process_group("gloo" if args.cpu else "nccl")
        symbols = dictionary_symbols(args.data)
        self.train, self.valid = (
            TokenBlocks(args.data / split, args.tokens_per_sample, len(symbols))
            for split in ("train", "valid")
        )
        torch.manual_seed(args.seed)
        self.model = modules.CausalLanguageModel(config, len(symbols)).to(self.device)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, betas=BETAS, weight_decay=args.weight_decay, fused=True
        )
        values = asdict(config).items()  # names as plain text
        self.config = {k: str(v) if isinstance(v, str) else v for k, v in values}
        kept = {f.name for f in fields(config) if not f.metadata[TRAINING_ONLY]}
        kept |= {"arch", "bf16", *SETTINGS}
        self.settings = {k: (vars(args) | self.config)[k] for k in sorted(kept)}
        self.settings["update_freq"] *= self.workers  # any number of processes resumes
        self.settings[IDENTITY] = dictionary_sha256(symbols)
        self.settings[UNITS_KEY] = subword_sha256(args.data)
        self.settings[DATA_KEY] = split_fingerprint([args.data], "train")
        make_folder(args.save_dir, "--save-dir")
        self.checkpoint = args.save_dir / "checkpoint_last.pt"
        if self.checkpoint.exists():
            self.resume()

    def learning_rate(self) -> float:
        """The rate of the next update: a linear warm-up, then n^-1/2."""
        args, n, warmup = self.args, self.updates, self.args.warmup_updates
        if n < warmup:
            return args.warmup_init_lr + n * (args.lr - args.warmup_init_lr) / warmup
        return args.lr * math.sqrt(warmup / n)

    def loss(self, blocks: TokenBlocks, numbers: np.ndarray) -> torch.Tensor:
        """The summed loss of a batch, in nats, and its number of tokens: (2,)."""
        *batch, count = blocks.batch(numbers)
        padding = "none" if count == batch[0].size else "right"
        tokens, targets = (torch.from_numpy(each).to(self.device) for each in batch)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.args.bf16):
            loss, _ = self.model(tokens, targets=targets, padding=padding)
        return torch.stack([loss, torch.full_like(loss, count)])

    def over_workers(self, sums: torch.Tensor) -> torch.Tensor:
        """The sum over all processes."""
        if self.workers > 1:
            dist.all_reduce(sums)
        return sums

    def update(self, batches: list[np.ndarray]) -> tuple[float, ...]:
        """Make an update; returns loss in nats, tokens, norm of the gradient."""
        torch.manual_seed(self.args.seed + self.updates)  # dropout, in all alike
        self.model.train()
        self.optimizer.zero_grad()
        sums = torch.zeros(2, dtype=torch.double, device=self.device)
        for numbers in batches:
            found = self.loss(self.train, numbers)
            found[0].backward()
            sums += found.detach()
        loss, tokens = self.over_workers(sums).tolist()
        for p in self.parameters:  # without a batch, at an epoch's end
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        flat = torch.cat([p.grad.flatten() for p in self.parameters])
        flat = self.over_workers(flat).div_(tokens)
        sizes = [p.numel() for p in self.parameters]
        for p, part in zip(self.parameters, flat.split(sizes), strict=True):
            p.grad = part.view_as(p)
        longest = self.args.clip_norm or math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, longest).item()
        if not math.isfinite(norm):
            raise ValueError(f"update {self.updates + 1}: gradient norm {norm}")
        # fairseq's Adam adds eps to the root of v before the bias of v is corrected
        eps = EPS / math.sqrt(1 - BETAS[1] ** (self.updates + 1))
        self.optimizer.param_groups[0].update(lr=self.learning_rate(), eps=eps)
        self.optimizer.step()
        self.updates += 1
        return loss, tokens, norm

    @torch.no_grad()
    def validate(self) -> float:
        """Nats per token of the validation split."""
        self.model.eval()
        sums = torch.zeros(2, dtype=torch.double, device=self.device)
        batches = self.valid.batches(self.args.batch_size, self.args.seed)
        for numbers in batches[self.rank :: self.workers]:
            sums += self.loss(self.valid, numbers)
        loss, tokens = self.over_workers(sums).tolist()
        return loss / tokens

    def save(self) -> None:
        """Write the checkpoint, in fairseq's format."""
        args = self.args
        task = {"_name": "language_modeling", "data": str(args.data.resolve())}
        task["tokens_per_sample"] = args.tokens_per_sample
        model = {"_name": args.arch, **self.config}
        done = {"num_updates": self.updates, "lr_scheduler_state": {}}
        state = {"cfg": {"model": model, "task": task}, "optimizer_history": [done]}
        more = {"train_iterator": None, "sums": self.sums.tolist()}
        state["extra_state"] = self.settings | more
        state["model"] = {MODEL + k: v for k, v in self.model.state_dict().items()}
        state["last_optimizer_state"] = self.optimizer.state_dict()
        write_whole(self.checkpoint, lambda file: torch.save(state, file))

    def resume(self) -> None:
        """Load the checkpoint; ValueError if it is damaged, or of another run."""
        try:
            state = read_checkpoint(self.checkpoint)
        except ValueError as e:
            raise ValueError(f"{e}; allowed: a copy, or another --save-dir") from e
        if "arch" not in state["extra_state"]:
            problem = f"{self.checkpoint} is not of this program"
            raise ValueError(f"{problem}; allowed: another --save-dir")
        for name, value in self.settings.items():
            before = state["extra_state"].get(name, value)
            if before != value:
                problem = f"{name}={value}: {self.checkpoint} has {before}"
                raise ValueError(f"{problem}; allowed: the same, or another --save-dir")
        weights = {k.removeprefix(MODEL): v for k, v in state["model"].items()}
        self.model.load_state_dict(weights)
        self.optimizer.load_state_dict(state["last_optimizer_state"])
        self.updates = state["optimizer_history"][-1]["num_updates"]
        self.sums += state["extra_state"].get("sums", 0)

    def run(self) -> None:
        """Train, log, validate and save until all updates are done."""
        args, batches = self.args, None
        an_update = self.workers * args.update_freq  # batches
        an_epoch = -(-len(self.train) // args.batch_size // an_update)  # updates
        since = time.monotonic()
        if self.rank == 0 and not self.updates:
            put_earlier_aside(args.save_dir)
        while self.updates < args.max_update:
            epoch, nth = divmod(self.updates, an_epoch)
            if batches is None or nth == 0:
                batches = self.train.batches(args.batch_size, args.seed, epoch + 1)
            mine = batches[nth * an_update : (nth + 1) * an_update]
            self.sums += (*self.update(mine[self.rank :: self.workers]), 1)
            if self.updates % args.log_interval == 0:
                seconds, since = time.monotonic() - since, time.monotonic()
                (loss, tokens, norms, updates), self.sums = self.sums, np.zeros(4)
                left = (args.max_update - self.updates) * seconds / updates
                rates = {"wps": tokens / seconds, "gnorm": norms / updates}
                rates |= {"lr": self.learning_rate(), "minutes_left": left / 60}
                self.log("train_inner", epoch + 1, loss / tokens, **rates)
            is_due = self.updates % args.save_interval_updates == 0
            if is_due or self.updates == args.max_update:
                self.log("valid", epoch + 1, self.validate())
                if self.rank == 0:
                    self.save()

    def log(self, kind: str, epoch: int, nats: float, **values: float) -> None:
        """A line in train.log, in fairseq's names, and one on the terminal."""
        bits = nats / math.log(2)
        values = {"loss": bits, "ppl": 2**bits, **values}
        values = {name: float(f"{value:.6g}") for name, value in values.items()}
        values |= {"num_updates": self.updates}
        prefix = "" if kind == "train_inner" else f"{kind}_"
        if self.rank == 0:
            record = {prefix + name: value for name, value in values.items()}
            append_record(self.args.save_dir, kind, {"epoch": epoch, **record})
            print(kind, *(f"{k} {v}," for k, v in values.items()), flush=True)


if __name__ == "__main__":
    try:
        Trainer(*parse()).run()
    except (OSError, ValueError) as e:
        message = f"{e.filename}: {e.strerror}" if isinstance(e, OSError) else e
        print(f"train_plain_pytorch.py: error: {message}", file=sys.stderr)
        sys.exit(2)
