"""Tries the Triton kernels on this device ahead of a training, and prints a table.

What the models launch forward, backward and in generation is tried beside torch and
float64: by length, with and without pads. backend=auto does the same at first use and
finds these verdicts; this is for nodes whose first use should not wait for compilation,
and for a look at what a device does. The folder is $FAIRSEQ_TRANSNORMER_CACHE, else
fairseq_transnormer in the user's cache.

Exit code: 0 all passed, 1 some did not (torch then serves them), 2 wrong usage.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import chain
from multiprocessing import get_context, resource_tracker
from queue import SimpleQueue

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from .argument_types import integer_between, positive_integer
from .cli import command_parser, output_file
from .data.whole_files import write_json
from .devices import usable_device
from .modules.layers import LayerStack
from .modules.systems import CONFIGS, SYSTEMS, System
from .ops import backend, linear_cross_entropy
from .ops.backend import DTYPES
from .ops.verification import records, verdicts
from .ops.verification.records import Record
from .ops.verification.verdicts import Configuration

DTYPES_BY_NAME = {str(x).removeprefix("torch."): x for x in DTYPES}
ARCHITECTURES = {
    system.architecture_of(kind): (system, kind)
    for system in SYSTEMS.values()
    for kind in system.kinds
}
# tokens of a batch; the kernel of the loss is the same for any vocabulary
TOKENS, VOCABULARY = 4096, 64


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = command_parser("fairseq_transnormer verify", __doc__)
    parser.add_argument("--device", help="default: the first GPU")
    parser.add_argument(
        "--arch",
        nargs="+",
        choices=ARCHITECTURES,
        default=["transnormer_t2", "transnormer_t1"],
        metavar="ARCH",
        help="models' names for fairseq-train (default: transnormer_t2 transnormer_t1)",
    )
    parser.add_argument(
        "--dtype",
        nargs="+",
        choices=DTYPES_BY_NAME,
        default=["bfloat16", "float16"],
        help="default: bfloat16 float16; float32 is tried in TF32",
    )
    parser.add_argument("--lengths", nargs="+", type=positive_integer, default=[512])
    parser.add_argument(
        "--workers",
        type=integer_between(0),
        default=0,
        metavar="N",
        help="processes that compile and try side by side; each serves one trial "
        "after the other, and one that dies of a trial is replaced (default: 0, all "
        "in this process)",
    )
    parser.add_argument(
        "--again", action="store_true", help="whatever verdicts there are"
    )
    parser.add_argument("--output", type=output_file, metavar="FILE", help="JSON, too")
    parser.add_argument(
        "--amp",
        action="store_true",
        help="models in float32 under autocast, as fairseq's --amp has them",
    )
    options = parser.parse_args(arguments)
    try:
        device = usable_device(options.device)
    except ValueError as error:
        parser.error(f"--{error}")
    if device.type not in ("cuda", "cpu"):
        parser.error(f"--device {device}; allowed: cuda, cuda:1 ... (cpu: interpreted)")
    dtypes = [DTYPES_BY_NAME[name] for name in options.dtype]
    _prepare()
    rowwise = backend.Kernels("rows", products=False)
    reasons = {
        backend.why_triton_cannot_run([torch.empty(0, dtype=x, device=device)], rowwise)
        for x in dtypes
    }
    if None not in reasons:
        told = (
            f"no kernel can run on {device}: {'; '.join(sorted(filter(None, reasons)))}"
        )
        parser.exit(2, f"{parser.prog}: error: {told}\n")
    arguments = options.lengths, device, options.amp, options.workers
    configurations = needed(options.arch, dtypes, *arguments)
    report = {"wanted": len(configurations), "rows": []}
    rows = report["rows"]
    if options.output is not None:
        report["environment"] = records.environment(device)
    if options.workers:
        tried = _in_workers(configurations, options.again, options.workers)
    else:
        tried = _in_this_process(configurations, options.again)
    try:
        for configuration, record in tried:
            rows.append({"configuration": configuration.in_words(), **record._asdict()})
            print(line(configuration, record), flush=True)
            if options.output is not None:
                write_json(options.output, report)
    except KeyboardInterrupt:
        print(f"interrupted after {len(rows)} of {len(configurations)}")
        return 130
    failed = sum(row["reason"] is not None for row in rows)
    print(f"{len(rows) - failed} of {len(rows)} passed; {records.folder()}")
    return 1 if failed else 0


def needed(
    architectures: Sequence[str],
    dtypes: Sequence[torch.dtype],
    lengths: Sequence[int],
    device: torch.device,
    amp: bool = False,
    workers: int = 0,
) -> list[Configuration]:
    """What the models would have tried: two layers of each, on tensors without data.

    Which form of causal attention a batch takes depends on its size: all are added.
    They come by dtype, and of one dtype by architecture.

    Args:
        architectures: names of ARCHITECTURES.
        dtypes: of the models, or with ``amp`` of autocast around models in float32.
        lengths: in tokens.
        workers: processes that each look at one model in one dtype; 0 for this one.
    """
    models = [(name, dtype) for dtype in dtypes for name in architectures]
    if workers:
        one = partial(_needed_by_one, lengths, device, amp)
        with _processes(min(workers, len(models))) as pool:
            return list(dict.fromkeys(chain.from_iterable(pool.map(one, models))))
    with verdicts.collected() as configurations:
        for name, dtype in models:
            for length in lengths:
                _run(*ARCHITECTURES[name], dtype, length, device, amp)
    found = {}
    for each in configurations:
        options = dict(each.options)
        forms = [options.get("form")]
        if each.op == "linear_attention" and "/" in forms[0]:
            from .ops.triton_ops.linear_attention.forms import FORMS, sizes_of_form

            widths = options["width"], options["value_width"]
            rule = widths, each.dtype, device
            forms = [form for form in FORMS if sizes_of_form(form, *rule)]
        for form in forms:
            if form is not None:
                options["form"] = form
            found[each._replace(options=tuple(options.items()))] = None
    return list(found)


def _needed_by_one(
    lengths: Sequence[int],
    device: torch.device,
    amp: bool,
    model: tuple[str, torch.dtype],
) -> list[Configuration]:
    name, dtype = model
    return needed([name], [dtype], lengths, device, amp)


def _run(
    system: System,
    kind: str,
    dtype: torch.dtype,
    length: int,
    device: torch.device,
    amp: bool,
) -> None:
    """Training, evaluation, a decoder's generation; one sequence, and many."""
    own = torch.float32 if amp else dtype
    values = system.model_values(kind) | {"attention_types": system.attention_types(2)}
    config, causal = CONFIGS[kind](**values), kind == "alm"
    stack = LayerStack(config, causal=causal).to(device, own)
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        _NoPadFirst(),
        torch.autocast(device.type, dtype, enabled=amp),
    ):
        for batch in dict.fromkeys((1, max(1, TOKENS // length))):
            shape = (batch, length, config.embed_dim)
            x = torch.zeros(shape, device=device, dtype=own, requires_grad=True)
            masks = None, torch.zeros(shape[:2], device=device).bool()
            stack.train()
            for mask in masks:
                stack(x, mask).sum().backward()
            if kind != "lra":
                weight = torch.zeros(VOCABULARY, shape[-1], device=device, dtype=own)
                targets = torch.zeros(shape[:2], device=device, dtype=torch.int64)
                linear_cross_entropy(x, weight, targets)
            stack.eval()
            with torch.no_grad():
                for mask in masks:
                    stack(x, mask)
                if causal:
                    _, states = stack(x, None, None, True)
                    stack(x[:, :1], None, states, True)


class _NoPadFirst(TorchDispatchMode):
    """Tensors without data answer False where a model asks for the place of pads."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default:
            return False
        return function(*args, **(kwargs or {}))


def line(configuration: Configuration, record: Record) -> str:
    """A row of the table."""
    error = "" if record.error is None else f"{record.error:.2f}x"
    verdict = "triton" if record.reason is None else f"torch: {record.reason}"
    words = configuration.in_words()
    return f"{error:>7} of torch's error {record.seconds:7.1f} s  {words}  {verdict}"


def _in_this_process(
    configurations: Sequence[Configuration], again: bool
) -> Iterator[tuple[Configuration, Record]]:
    for configuration in configurations:
        yield configuration, verdicts.verdict(configuration, again)


def _in_workers(
    configurations: Sequence[Configuration], again: bool, workers: int
) -> Iterator[tuple[Configuration, Record]]:
    """As trials end. After an interrupt none is begun; those under way end."""
    idle: SimpleQueue[ProcessPoolExecutor | None] = SimpleQueue()
    for _ in range(workers):
        idle.put(None)

    def tried(configuration: Configuration) -> Record:
        pool = idle.get() or _processes(1)
        try:
            return pool.submit(verdicts.verdict, configuration, again).result()
        except BrokenProcessPool:
            pool = None
            return verdicts.lost(configuration)
        except RuntimeError as error:
            # a broken CUDA context: what else this process tried would fail
            pool.shutdown()
            pool = None
            return Record(str(error), None, 0.0)
        finally:
            idle.put(pool)

    lanes = ThreadPoolExecutor(workers, initializer=_leave_interrupts_to_others)
    try:
        futures = {lanes.submit(tried, each): each for each in configurations}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        lanes.shutdown(cancel_futures=True)
        while not idle.empty():
            pool = idle.get()
            if pool is not None:
                pool.shutdown()


def _leave_interrupts_to_others() -> None:
    """Ctrl-C comes to all processes of a terminal; one that it ended in a trial would
    stand for a kernel that did. Those that this thread starts inherit its mask."""
    resource_tracker.ensure_running()  # which, when it starts, unblocks signals
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _processes(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        count, mp_context=get_context("spawn"), initializer=_prepare
    )


def _prepare() -> None:
    """What each process that tries has to have."""
    # the interpreter has been asked for by its name, TRITON_INTERPRET
    backend.INTERPRETER_IS_A_DEVICE = backend.INTERPRETED
    # without it ``auto`` leaves products of float32 to torch
    torch.set_float32_matmul_precision("high")
