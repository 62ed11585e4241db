"""Try the kernels that models launch on a device, and save the verdicts."""

from __future__ import annotations

import copy
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, product
from multiprocessing import get_context, resource_tracker
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from .data.whole_files import write_json
from .modules.layers import LayerStack
from .modules.systems import CONFIGS, SYSTEMS
from .ops import backend, linear_cross_entropy, trials, verdicts
from .ops.backend import DTYPES
from .ops.trial_cases import CASES
from .ops.trials import Trial
from .ops.verdicts import Configuration, Verdict

DTYPES_BY_NAME = {str(x).removeprefix("torch."): x for x in DTYPES}
ARCHITECTURES = {
    system.architecture_of(kind): (system, kind)
    for system in SYSTEMS.values()
    for kind in system.kinds
}
# tokens of a row and of a batch: other lengths launch the same kernels. The kernel of
# the loss is the same for any vocabulary.
LENGTH, TOKENS, VOCABULARY = 512, 4096, 64
CRASHED = Verdict("crashed: its trial ended the process", None, 0.0)


def configuration_of(words: str, device: torch.device) -> Configuration:
    """The configuration that ``verify`` prints in these words, or ValueError."""
    found = Configuration.from_words(words, device)
    needed = {"form", "width", "value_width"} if found.op == "linear_attention" else {}
    missing = {*needed} - {*dict(found.options)}
    if found.op not in CASES or found.dtype not in DTYPES or missing:
        raise ValueError(f"configuration must be one that verify prints, got {words!r}")
    return found


def report(
    configurations: Sequence[Configuration],
    device: torch.device,
    workers: int,
    again: bool,
    output: Path | None,
) -> int:
    """Try configurations without a verdict, and print one row each; the exit code."""
    rows: list[dict[str, Any]] = []
    report = {"wanted": len(configurations), "rows": rows}
    if output is not None:
        report["environment"] = verdicts.environment(device)
    try:
        with _lock(device):
            known = {} if again else verdicts.known(device)
            for one, verdict in _tried(configurations, known, workers):
                rows.append({"configuration": one.in_words(), **verdict._asdict()})
                print(line(one, verdict), flush=True)
                if output is not None:
                    write_json(output, report)
    except KeyboardInterrupt:
        print(f"interrupted after {len(rows)} of {len(configurations)}")
        return 130
    failed = sum(row["reason"] is not None for row in rows)
    print(f"{len(rows) - failed} of {len(rows)} passed; {verdicts.path_of(device)}")
    return 1 if failed else 0


def _lock(device: torch.device) -> AbstractContextManager[Any]:
    try:
        return verdicts.lock(device)
    except (OSError, NotImplementedError):
        return nullcontext()  # no folder, or a file system without locks


def needed(
    architectures: Sequence[str],
    dtypes: Sequence[torch.dtype],
    lengths: Sequence[int],
    device: torch.device,
    amp: bool = False,
) -> list[Configuration]:
    """The configurations that models need: two layers of each, on tensors without data.

    The form of causal attention depends on the batch size, so all forms are included.
    They are sorted by dtype, then by architecture.

    Args:
        architectures: names of ARCHITECTURES.
        dtypes: of the models, or with ``amp`` of autocast around models in float32.
        lengths: in tokens.
    """
    found = []
    for dtype, name in product(dtypes, architectures):
        system, kind = ARCHITECTURES[name]
        two = {"attention_types": system.attention_types(2)}
        config, causal = CONFIGS[kind](**system.model_values(kind) | two), kind == "alm"
        stack = LayerStack(config, causal=causal)
        stack.to(device, torch.float32 if amp else dtype)
        rest = dtype if amp else None, kind != "lra", causal
        for length in lengths:
            found += needed_by_layers(stack, config.embed_dim, length, *rest)
    return with_all_forms(found)


def with_all_forms(configurations: Iterable[Configuration]) -> list[Configuration]:
    """Each configuration once, and all forms of causal linear attention."""
    found = {}
    for each in configurations:
        options = dict(each.options)
        forms = [options.get("form")]
        if each.op == "linear_attention" and "/" in forms[0]:
            from .ops.linear_attention.launch_table import FORMS, sizes_of_form

            widths = options["width"], options["value_width"]
            rule = widths, each.dtype, each.device
            forms = [form for form in FORMS if sizes_of_form(form, *rule)]
        for form in forms:
            if form is not None:
                options["form"] = form
            found[each._replace(options=tuple(options.items()))] = None
    return list(found)


def needed_by_layers(
    stack: LayerStack,
    width: int,
    length: int,
    autocast: torch.dtype | None = None,
    vocabulary: bool = True,
    generates: bool = False,
) -> list[Configuration]:
    """The configurations that layers and the loss need; nothing is computed.

    Args:
        stack: is not changed; of layers with one name only the first is inspected.
        width: of its input.
        length: in tokens; one sequence, and many.
        autocast: around the layers, None for none.
        vocabulary: whether an output layer over a vocabulary follows.
        generates: whether tokens are also taken one at a time (causal only).
    """
    weight = next(stack.parameters())
    device, dtype = weight.device, weight.dtype
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    tensors = chain(stack.parameters(), stack.buffers())
    stack = copy.deepcopy(stack, {id(x): mode.from_tensor(x) for x in tensors})
    first = sorted({stack.names.index(name) for name in stack.names})
    stack.layers = nn.ModuleList(stack.layers[i] for i in first)
    stack.names = [stack.names[i] for i in first]
    stack.graphed, stack.compile_layers = None, False
    with (
        verdicts.collected() as configurations,
        mode,
        _NoPadFirst(),
        torch.autocast(device.type, autocast, enabled=autocast is not None),
    ):
        for batch in dict.fromkeys((1, max(1, TOKENS // length))):
            shape = (batch, length, width)
            x = torch.zeros(shape, device=device, dtype=dtype, requires_grad=True)
            masks = None, torch.zeros(shape[:2], device=device).bool()
            stack.train()
            for mask in masks:
                stack(x, mask)[0].sum().backward()
            if vocabulary:
                output = torch.zeros(VOCABULARY, width, device=device, dtype=dtype)
                targets = torch.zeros(shape[:2], device=device, dtype=torch.int64)
                linear_cross_entropy(x, output, targets)
            stack.eval()
            with torch.no_grad():
                for mask in masks:
                    stack(x, mask)
                if generates:
                    _, states = stack(x, None, None, True)
                    stack(x[:, :1], None, states, True)
    return configurations


class _NoPadFirst(TorchDispatchMode):
    """Tensors without data answer False when a model asks for the place of pads."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default:
            return False
        return function(*args, **(kwargs or {}))


def line(configuration: Configuration, verdict: Verdict) -> str:
    """A row of the table."""
    error = "" if verdict.error is None else f"{verdict.error:.2f}x"
    result = "triton" if verdict.reason is None else f"torch: {verdict.reason}"
    words = configuration.in_words()
    return f"{error:>7} of torch's error {verdict.seconds:7.1f} s  {words}  {result}"


def _tried(
    configurations: Sequence[Configuration],
    known: Mapping[str, Verdict],
    workers: int,
) -> Iterator[tuple[Configuration, Verdict]]:
    """Yield known verdicts, then those of trials as they end, which are saved.

    After an interrupt no trial begins; running ones end.
    """
    missing = [each for each in configurations if each.in_words() not in known]
    for each in configurations:
        if each.in_words() in known:
            yield each, known[each.in_words()]
    idle: SimpleQueue[ProcessPoolExecutor | None] = SimpleQueue()
    for _ in range(workers):
        idle.put(None)
    lanes = ThreadPoolExecutor(workers, initializer=_leave_interrupts_to_others)
    try:
        futures = {lanes.submit(_in_a_worker, each, idle): each for each in missing}
        for future in as_completed(futures):
            configuration, (verdict, lasts, _) = futures[future], future.result()
            if lasts:
                _keep(configuration, verdict)
            else:
                print(line(configuration, verdict), file=sys.stderr)
            yield configuration, verdict
    finally:
        lanes.shutdown(cancel_futures=True)
        while not idle.empty():
            pool = idle.get()
            if pool is not None:
                pool.shutdown()


def _in_a_worker(
    configuration: Configuration, idle: SimpleQueue[ProcessPoolExecutor | None]
) -> Trial:
    """Run a trial in the process of a lane, which runs one trial after the other."""
    pool = idle.get() or _processes(1)
    try:
        found = pool.submit(trials.trial, configuration).result()
        if found.raised:
            # what raised may have broken the CUDA context
            pool.shutdown()
            pool = None
        return found
    except BrokenProcessPool:
        pool = None
        return Trial(CRASHED, lasts=True, raised=True)
    finally:
        idle.put(pool)


def _keep(configuration: Configuration, verdict: Verdict) -> None:
    try:
        verdicts.add(configuration.device, {configuration.in_words(): verdict})
    except OSError as error:
        print(f"the verdict is not kept: {error}", file=sys.stderr)


def _leave_interrupts_to_others() -> None:
    """Block Ctrl-C in this thread and in the processes that it starts.

    A process that Ctrl-C ends during a trial would look like a kernel that crashed.
    """
    resource_tracker.ensure_running()  # which, when it starts, unblocks signals
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _processes(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        count, mp_context=get_context("spawn"), initializer=prepare
    )


def prepare() -> None:
    """Prepare a process for trials."""
    # the environment variable TRITON_INTERPRET has chosen the interpreter
    backend.INTERPRETER_IS_A_DEVICE = backend.INTERPRETED
    # without it ``auto`` leaves products of float32 to torch
    torch.set_float32_matmul_precision("high")
