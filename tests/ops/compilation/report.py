"""Compile every launch of the attentions and write down what it needs of a GPU.

    python -m tests.ops.compilation.report [--kernels NAME ...] [--check]

writes resources.json and the table of README.md in results/kernels. No GPU is
needed. --check writes nothing. Fails if a launch passes its budgets.
"""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor

import triton

from tests.paths import ROOT

from . import block_attention_launches as block
from . import linear_attention_launches as linear
from .compilation import (
    SHARED_MEMORY,
    STACK,
    programs_a_multiprocessor,
    serialized_products,
    transposed_accumulators,
    waits,
)

RESULTS = ROOT / "results/kernels/resources.json"
PAGE = ROOT / "results/kernels/README.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
CAPABILITIES = (80, 86, 90)
WIDTHS = (64, 128, 32)
KERNELS = {name: linear for name in linear.LAUNCHES} | {
    name: block for name in block.LAUNCHES
}


def measure(name: str, dtype: str, width: int, capability: int) -> dict | None:
    """A row of the report; None for what is not launched."""
    room = KERNELS[name]
    options = room.launch_configuration(name, dtype, width, capability)
    if options is None:
        return None
    compiled = room.compile_launch(name, dtype, width, capability)
    warps = options["num_warps"]
    return {
        "kernel": name,
        "dtype": dtype,
        "width": width,
        "capability": capability,
        "chunk": options.get("CHUNK"),
        "warps": warps,
        "stages": options["num_stages"],
        "registers": compiled.registers,
        "stack": compiled.stack,
        "shared": compiled.shared,
        "programs": programs_a_multiprocessor(compiled, warps, capability),
        "instructions": compiled.instructions,
        "waits": waits(compiled),
        "transposed": len(transposed_accumulators(compiled)) if capability == 90 else 0,
        "serialized": capability == 90 and serialized_products(compiled),
    }


def excess(row: dict) -> str | None:
    """What is wrong with a row, or None."""
    allowed = block.STACKS.get(
        (row["kernel"], row["dtype"], row["width"], row["capability"]), STACK
    )
    if row["stack"] > allowed:
        return f"spills {row['stack']} bytes"
    if row["shared"] > SHARED_MEMORY[row["capability"]]:
        return f"{row['shared']} bytes of shared memory"
    if row["transposed"]:
        return "transposes a product"
    if row["serialized"]:
        return "waits for each product"
    return None


def table(rows: list[dict]) -> str:
    """Markdown: a line for each kernel, dtype and width, a column a capability."""
    columns = [f"sm_{capability}" for capability in CAPABILITIES]
    lines = [
        "| kernel | dtype | width | " + " | ".join(columns) + " |",
        "|---" * (3 + len(columns)) + "|",
    ]
    cells = {}
    for row in rows:
        chunk = f"C{row['chunk']} " if row["chunk"] else ""
        cells.setdefault((row["kernel"], row["dtype"], row["width"]), {})[
            row["capability"]
        ] = (
            f"{chunk}w{row['warps']} s{row['stages']}: {row['registers']} / "
            f"{row['stack']} / {row['shared'] / 1024:.0f}K, {row['programs']}, "
            f"{'/'.join(map(str, row['waits'])) or '-'}, "
            f"{row['instructions']['narrow loads']}"
        )
    for key, found in cells.items():
        values = [found.get(capability, "torch") for capability in CAPABILITIES]
        lines.append(f"| {' | '.join(map(str, key))} | {' | '.join(values)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernels", nargs="+", choices=KERNELS, default=list(KERNELS))
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    combinations = [
        (name, dtype, width, capability)
        for name in arguments.kernels
        for width in WIDTHS
        for dtype in linear.DTYPES
        for capability in CAPABILITIES
    ]
    with ProcessPoolExecutor() as pool:
        rows = list(pool.map(measure, *zip(*combinations, strict=True)))
    rows = [row for row in rows if row is not None]
    for row in rows:
        if excess(row):
            print(*(row[k] for k in ("kernel", "dtype", "width", "capability")), ":")
            print("   ", excess(row))
    if not arguments.check:
        report = {"triton": triton.__version__, "rows": rows}
        RESULTS.write_text(json.dumps(report, indent=1) + "\n")
        before, _, rest = PAGE.read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{after}")
    if any(map(excess, rows)):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
