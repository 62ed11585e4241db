"""The options of every benchmark; an option's help is the comment above it or after it.

Nothing here imports torch: --help is quick.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import tyro

from fairseq_transnormer.data.whole_files import make_folder_of
from fairseq_transnormer.outputs import checked_path

FOLDER = Path("results") / "benchmarks"
Rows = list[dict[str, Any]]
Dtype = Literal["float32", "bfloat16", "float16"]
Backends = tuple[Literal["torch", "triton"], ...]


class Case(NamedTuple):
    """The size of a batch."""

    batch: int
    length: int


def check_run_file(path: Path, name: str) -> None:
    """Raise ValueError for a file that no benchmark wrote; make its folder."""
    make_folder_of(path, name)
    if path.exists():
        try:
            ours = "benchmark" in json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, TypeError):
            ours = False
        if not ours:
            raise ValueError(f"{path} exists; no benchmark wrote it")


def _pair(words: list[str]) -> tuple[int, int]:
    first, second = map(int, words[0].split("x"))
    return first, second


# two integers such as 8x512
Pair = Annotated[
    tuple[int, int],
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="AxB",
        instance_from_str=_pair,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: ["x".join(map(str, value))],
    ),
]


def chosen(option: str, names: Collection[str], known: Collection[str]) -> list[str]:
    """The names that an option has, all that are known where it has none.

    Raises:
        ValueError: one is not known.
    """
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{option} must be among {[*known]}, got {unknown}")
    return [*(names or known)]


@dataclass
class Options:
    """What every benchmark takes."""

    device: str = "cpu"  # cpu, cuda or cuda:1
    threads: int | None = None  # of torch on a CPU; None: torch's own choice
    least_repeats: int = 3  # samples of each case at least
    most_repeats: int = 30  # samples of each case at most, on a CPU
    seconds: float = 1.0  # for the samples of a case beyond the least
    # of a CPU; process: processor time, for a busy machine, with --threads 1
    clock: Literal["wall", "process"] = "wall"
    time_limit: float = 3600.0  # seconds after which no case begins
    # leave out cases with a length x length tensor above this
    quadratic_limit_gib: float = 0.5
    # JSON file; None: results/benchmarks/NAME_DEVICE.json
    output: Annotated[Path | None, checked_path("FILE", check_run_file)] = None

    # option -> its default on a CPU and on a GPU
    BY_DEVICE: ClassVar[dict[str, tuple]] = {}

    def complete(self) -> None:
        """Fill in what depends on other options.

        Raises:
            ValueError: two options contradict each other.
        """
        for name, defaults in self.BY_DEVICE.items():
            if getattr(self, name) is None:
                setattr(self, name, defaults[self.on_gpu])

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def torch_dtype(self):
        """Of the option ``dtype``."""
        import torch

        return getattr(torch, self.dtype)

    def settings(self) -> dict[str, object]:
        """What a benchmark has beyond the common options, for its file."""
        names = {each.name for each in fields(self)} - {e.name for e in fields(Options)}
        return {name: getattr(self, name) for name in (*sorted(names), "clock")}


@dataclass
class TokensOptions(Options):
    """Of a constant number of tokens at every length."""

    lengths: tuple[int, ...] = ()  # n; powers of two from 512 on by default
    tokens: int | None = None  # B n

    def complete(self) -> None:
        super().complete()
        powers = (2**i for i in range(9, 17))
        fitting = tuple(n for n in powers if self.tokens % n == 0)
        self.lengths = self.lengths or fitting
        for length in self.lengths:
            if length < 1 or self.tokens % length:
                raise ValueError(
                    f"--lengths must divide --tokens {self.tokens}, got {length}"
                )


@dataclass
class Ops(TokensOptions):
    """The ops and their peers: time, memory, errors and share of the bandwidth.

    The number of tokens is the same at every length. Each provider is compared with
    float64 before it is timed. Caches are cold. On a GPU each call is timed as Python
    launches it and as a CUDA graph. A case that cannot run is a row with its reason.
    Providers that compile or tune in their first call come last; they share the
    remaining time equally. Exit code 1: ours did not run, or is wrong.
    """

    # leave out larger length x length matrices; None: 0.5, 4 on a GPU
    quadratic_limit_gib: float | None = None
    ops: tuple[str, ...] = ()  # of benchmarks/registry.py; all by default
    quick: bool = False  # without providers that compile or tune for long
    check_length: int = 512  # where errors are measured
    tokens: int | None = None  # B n; None: 16,384, 65,536 on a GPU
    heads: int = 8  # H
    width: int = 64  # D, of a head
    block_size: int = 64  # w
    # phi of linear attention
    feature_map: Literal["identity", "1+elu", "elu", "relu"] = "identity"
    dtype: Dtype | None = None  # of inputs; None: float32, bfloat16 on a GPU

    BY_DEVICE = {
        "quadratic_limit_gib": (0.5, 4.0),
        "tokens": (16384, 65536),
        "dtype": ("float32", "bfloat16"),
    }

    def cases(self) -> list[Case]:
        return [Case(self.tokens // n, n) for n in self.lengths]

    def check_case(self) -> Case:
        """On a GPU all tokens, which torch.compile then has compiled once."""
        batch = max(self.tokens // self.check_length, 1) if self.on_gpu else 2
        return Case(batch, self.check_length)


@dataclass
class LaunchSweep(Options):
    """The fastest form and stages of causal linear attention on a GPU.

    Every form, segment length and number of stages is timed as a CUDA graph, forward
    and backward. Numbers of sequences and lengths vary. This takes minutes, most of
    them to compile. The times give the rule by which a call takes a form. They also
    give the stages of each kernel that are nearest to the best of each size.
    """

    least_repeats: int = 5  # samples of each case at least
    seconds: float = 0.01  # for the samples of a case beyond the least
    time_limit: float = 300.0  # seconds after which no case begins
    dtype: Dtype = "bfloat16"  # of inputs
    width: Literal[32, 64, 128] = 64  # of a head
    sizes: tuple[Pair, ...] = ()  # BHxN, sequences and length; all by default

    def complete(self) -> None:
        if not self.on_gpu:
            raise ValueError(f"--device must be cuda, got {self.device}")


@dataclass
class ModelOptions(Options):
    """Of language models; a subclass has its own sizes."""

    width: int = 512  # of the models
    heads: int = 8  # of the attentions
    layers: int = 6  # of the models
    vocabulary: int | None = 8000  # entries


@dataclass
class TrainingStep(TokensOptions, ModelOptions):
    """A training step over the length, at a constant number of tokens.

    A step is forward, loss, backward and Adam. It is measured for the layers without
    the output layer, and for the whole language model. Weights have --dtype, and Adam
    has float32 copies of them. The models are TransNormer and fairseq's pre-norm
    transformer_lm, as fairseq ships it and with torch's fused attention.
    """

    dtype: Dtype = "float32"  # of the weights
    backends: Backends = ("torch",)  # of our ops
    # to run our layers: launched one by one, as CUDA graphs, by torch.compile
    ways: tuple[Literal["eager", "cuda_graphs", "compiled"], ...] = ("eager",)
    parts: tuple[Literal["stack", "model"], ...] = ("model", "stack")  # to measure
    variants: tuple[Literal["T1", "T2"], ...] = ("T2", "T1")  # ours
    tokens: int | None = None  # of a step; None: 2,048, 16,384 on a GPU
    # entries of the model's; None: 8,000, 267,744 on a GPU
    vocabulary: int | None = None

    BY_DEVICE = {"tokens": (2048, 16384), "vocabulary": (8000, 267744)}


@dataclass
class UpdateCost(Options):
    """An update of the paper's language models, as fairseq trains them and as we do.

    fairseq's way is criterion cross_entropy and optimizer adam. Ours is that of the
    configurations: chunked_cross_entropy and fused_adam, on request with compile_layers
    or cuda_graphs. fairseq's transformer then has ops.linear_cross_entropy.
    """

    dtype: Dtype = "float32"  # of the weights
    models: tuple[str, ...] = ()  # of benchmarks/update_cost.py; all by default
    # to train; "ours, compiled layers", "ours, layers as CUDA graphs" are others
    ways: tuple[str, ...] = ("fairseq's", "ours")
    # TOKENSxLENGTH, of a batch and of a sequence
    batches: tuple[Pair, ...] = ((1024, 512), (2048, 512), (4096, 512), (4096, 2048))
    vocabulary: int = 267744  # words

    def complete(self) -> None:
        for tokens, length in self.batches:
            if tokens % length:
                raise ValueError(
                    f"--batches must be multiples of the length, got {tokens}x{length}"
                )


@dataclass
class LRASpeed(Options):
    """Long-Range Arena's speed and memory over the length: Table 7.

    All systems take turns, in inference and in training (forward, loss, backward,
    Adam's step). Inputs are random bytes without pads, sizes are those of Appendix E.
    The vanilla transformer is measured twice: with its attention as a matrix, as in the
    paper, and with torch's fused attention. On a CPU the latter has no
    attention_dropout, for which torch has no fused kernel. A case that runs out of
    memory is a row with its reason; the paper has a dash. On a CPU it is not started.
    """

    # of one layer's matrices, on a CPU; by default two heads' of 16K in float32
    quadratic_limit_gib: float = 2.0
    systems: tuple[str, ...] = ()  # names of Table 7; all by default
    # to measure
    phases: tuple[Literal["inference", "training"], ...] = ("inference", "training")
    lengths: tuple[int, ...] = tuple(1024 * k for k in (1, 2, 3, 4, 5, 8, 16))  # tokens
    batch: int | None = None  # sequences; None: 1, 256 on a GPU
    backend: str = "auto"  # of our ops
    dtype: Dtype = "float32"  # or what is autocast to

    # 256: the paper's vanilla transformer ends between 2K and 3K tokens in 48 GB
    BY_DEVICE = {"batch": (1, 256)}


@dataclass
class GenerationCost(ModelOptions):
    """A token of whole models: states, fairseq's cache of keys and values, recomputing.

    The models are a TransNormer T2 and fairseq's transformer_lm of the same size. On a
    GPU T2's step is measured as a CUDA graph, too. The batch is 1, and each further
    step sees one token more.
    """

    dtype: Dtype = "float32"  # of the weights
    backends: Backends = ("torch",)  # of our ops
    contexts: tuple[int, ...] = (64, 512, 4096, 16384)  # tokens before the first step


@dataclass
class TokenCost(ModelOptions):
    """A token of T2 through transformers' generate, compared with a Llama of its size.

    The batch is 1; search is greedy, in float32. Llama runs twice: with transformers'
    default cache, which is copied for each token, and with its static cache.
    """

    contexts: tuple[int, ...] = (64, 512, 2048, 8192, 32768)  # tokens of the prompt
    tokens: int = 16  # of each call

    def new_tokens(self) -> int:
        """Tokens that are written after a prompt at most, the first call's too."""
        return (max(self.least_repeats, self.most_repeats) + 1) * self.tokens


@dataclass
class ImageGeneration(ModelOptions):
    """Images a second, pixel by pixel: constant state, key-value cache, recomputing.

    All providers draw the same number of images at a time with the package's generator,
    from the whole distribution. "recomputed" computes all tokens again at each step.
    The models are the paper's of MNIST by default.
    """

    width: int = 256  # of the models
    layers: int = 8  # of the models
    sides: tuple[int, ...] = (8, 16, 28)  # of a square image
    images: int = 16  # at a time
    levels: int = 256  # of a pixel
    call_limit: float = 3.0  # leave out cases that would take longer, in s


@dataclass
class AttentionOptions(Options):
    """Of one attention."""

    dtype: Dtype = "float32"  # of queries, keys and values
    heads: int = 8  # H
    width: int = 64  # D, of a head
    call_limit: float = 3.0  # leave out cases that would take longer, in s
    time_limit: float = 600.0  # seconds after which no case begins


@dataclass
class AttentionLengths(AttentionOptions):
    """One causal attention and its gradients over the length: Figure 1.

    The modules are those of models, without projections and positions. They are softmax
    as matrices, as in the paper, torch's fused softmax and LSH-X with X rounds of
    hashing. Others are linear attention with its sum, and T2's NormAttention and
    DiagAttention. Batches shrink with the length; figures are those of one sequence.
    """

    width: int = 32  # D, of a head as in the paper's images; it prints none for this
    lengths: tuple[int, ...] = tuple(2**i for i in range(9, 17))  # n
    tokens: int = 2**16  # of a batch


@dataclass
class LinearAttentionForms(AttentionOptions):
    """The forms of "Linear Transformers Are Faster" over length and head width.

    Each form, this package's op and torch's softmax attention are measured. The length
    varies at batch 1 (the post's setting) and at a constant number of tokens. Then the
    head width varies.
    """

    lengths: tuple[int, ...] = tuple(2**i for i in range(6, 15))  # n
    tokens: int = 8192  # constant count
    heads: int = 2  # H
    widths: tuple[int, ...] = (16, 32, 64, 128, 256)  # d, at one length
    width_length: int = 512  # that n
    chunk_size: int = 64  # of chunked
    backends: Backends = ("torch",)  # of our op
    forms: tuple[str, ...] = ()  # these alone
