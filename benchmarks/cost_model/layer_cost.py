"""Kernels that one layer launches and bytes that they move, counted without a GPU.

    python -m benchmarks layer_cost

A layer of T2 in training, forward and backward, on fake tensors (``traced.Trace``),
with torch's ops, with Triton's kernels, and as a V100 has them: Triton's that multiply
no matrices, and torch's ops else. X is the size of the layer's input.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from pandas import DataFrame
from torch import nn

from fairseq_transnormer.argument_types import positive_integer
from fairseq_transnormer.modules import LanguageModelT2Config
from fairseq_transnormer.modules.layers import build_layer

from ..harness import command_line, environment, results
from .on_a_gpu import as_on_a_gpu
from .traced import trace
from .training_step import cast

NAME = "layer_cost"
FOLDER = results.FOLDER.parent / "cost_model"
FORWARD, BACKWARD = "forward", "backward"
V100 = "auto on a V100"
BACKENDS = ("torch", "triton", V100)


def build(kind: str, backend: str, **changes) -> nn.Module:
    """A causal layer of T2 in bfloat16, in training mode."""
    asked = "auto" if backend == V100 else backend
    config = LanguageModelT2Config(attention_types=kind, backend=asked, **changes)
    layer = build_layer(kind, config, causal=True)
    return cast(layer, torch.bfloat16).train()


def layer_cost(
    kind: str, backend: str, batch: int, length: int, **changes
) -> dict[str, DataFrame]:
    """Kernels of the forward and of the backward pass; see ``Trace``.

    Args:
        kind: of attention, "norm" or "diag".
        backend: "torch", "triton" or V100.
        batch, length: of the input.
        changes: fields of the configuration that are not T2's.
    """
    with as_on_a_gpu(products=backend != V100):
        layer = build(kind, backend, **changes)
        shape = (batch, length, layer.attention.embed_dim)
        x = torch.empty(shape, dtype=torch.bfloat16, requires_grad=True)
        outputs = []
        forward = trace(lambda: outputs.append(layer(x)))
        grad = torch.empty_like(x)
        backward = trace(lambda: outputs[0].backward(grad))
    return {FORWARD: DataFrame(forward.kernels), BACKWARD: DataFrame(backward.kernels)}


def rows(kind: str, backend: str, batch: int, length: int) -> list[dict[str, object]]:
    """A row for each pass: launches, bytes in X, and the share of each kernel."""
    unit = batch * length * LanguageModelT2Config().embed_dim * 2
    found = []
    for phase, kernels in layer_cost(kind, backend, batch, length).items():
        by_name = kernels.groupby("name").bytes.agg(["size", "sum"])
        found.append(
            {
                "kind": kind,
                "backend": backend,
                "pass": phase,
                "launches": len(kernels),
                "bytes_in_x": round(kernels.bytes.sum() / unit, 1),
                "products_in_x": round(
                    kernels.bytes[kernels.flops > 0].sum() / unit, 1
                ),
                "kernels": {
                    name: [int(row["size"]), round(row["sum"] / unit, 1)]
                    for name, row in by_name.sort_values(
                        "sum", ascending=False
                    ).iterrows()
                },
            }
        )
    return found


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {NAME}", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--kinds", nargs="+", choices=["norm", "diag"], default=["norm", "diag"])
    add("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    add("--batch", type=positive_integer, default=8, help="sequences")
    add("--length", type=positive_integer, default=512, help="tokens of a sequence")
    add(
        "--output",
        type=results.run_file,
        default=Path(FOLDER / "layers.json"),
        help="JSON file",
    )
    options = parser.parse_args(arguments)
    measured = [
        row
        for kind in options.kinds
        for backend in options.backends
        for row in rows(kind, backend, options.batch, options.length)
    ]
    for row in measured:
        words = (row[key] for key in ("kind", "backend", "pass"))
        print(*words, f"{row['launches']} launches, {row['bytes_in_x']} X")
    results.write(
        options.output,
        benchmark=NAME,
        command=command_line.command(NAME, arguments),
        environment=environment.describe(torch.device("cpu")) | environment.peers(),
        settings={
            "batch": options.batch,
            "length": options.length,
            "dtype": "bfloat16",
            "units": "X: bytes of (batch, length, width); kernels: launches, X",
        },
        measurements=measured,
    )
    print(f"{NAME}: wrote {options.output}")
