"""Compile a kernel for a GPU that is not there, and look at what came out."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

# bytes of shared memory that one program may have
SHARED_MEMORY = {70: 98304, 75: 65536, 80: 166912, 86: 101376, 90: 232448}
# bytes of values that a thread may spill, but for a few listed launches
STACK = 96
# batch, token and head of a (B, N, H, D) tensor
STRIDES = ("i32", "i32", "i32")
# registers, shared memory, warps and programs of a multiprocessor
REGISTERS = 65536
MULTIPROCESSOR_MEMORY = {80: 167936, 86: 102400, 90: 233472}
MULTIPROCESSOR_WARPS = {80: 64, 86: 48, 90: 64}
MULTIPROCESSOR_PROGRAMS = {80: 32, 86: 16, 90: 32}
TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"
INSTRUCTIONS = {
    "wgmma": r"wgmma\.mma_async",
    "mma": r"\bmma\.sync",
    "cp.async 16": r"cp\.async\.cg\.shared\.global[^;]*0x10",
    "wide loads": r"ld\.global[\w.:]*\.v4",
    "narrow loads": r"ld\.global(?![\w.:]*\.v[248])[\w.:]*",
    "wide stores": r"st\.global[\w.:]*\.v4",
    "narrow stores": r"st\.global(?![\w.:]*\.v[248])[\w.:]*",
}


@dataclass
class Compiled:
    """registers and stack: of a thread (bytes of spills); shared: bytes a program.

    instructions: how often some stand in the PTX text, ``ptx``. capability: 80, 86
    or 90.
    """

    registers: int
    stack: int
    shared: int
    ttgir: str
    ptx: str
    instructions: dict[str, int]
    capability: int


def compile_kernel(
    kernel, types, constants, *, capability, num_warps, num_stages, aligned=True
) -> Compiled:
    """Compile ``kernel`` ahead of time.

    Args:
        kernel: a triton.jit function.
        types: Triton type of each argument that is no constant, by name, e.g.
            {"query": ("*bf16", "i32", "i32", "i32"), "length": "i32"}; None for a
            tensor that is left out.
        constants: the other arguments' values, by name.
        capability: 70, 75, 80, 86 or 90.
        num_warps, num_stages: as at launch.
        aligned: tell the compiler that pointers and strides are multiples of 16, as it
            finds at run time; else it can neither vectorise nor pipeline.
    """
    constexprs, attributes = {}, {}

    def entry(path, given, is_stride):
        """What the signature says at ``path``; integers in tuples are strides."""
        if isinstance(given, tuple):
            return tuple(entry((*path, i), x, True) for i, x in enumerate(given))
        if given is None:
            constexprs[path] = None
            return "constexpr"
        if aligned and (given.startswith("*") or is_stride):
            attributes[path] = [["tt.divisibility", 16]]
        return given

    signature = {}
    for i, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
            constexprs[(i,)] = constants[name]
        else:
            signature[name] = entry((i,), types[name], "stride" in name)
    compiled = triton.compile(
        ASTSource(kernel, signature, constexprs, attributes),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": num_warps, "num_stages": num_stages},
    )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        usage = subprocess.run(
            [TOOLS / "cuobjdump", "--dump-resource-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    return Compiled(
        int(found[1]),
        int(found[2]),
        compiled.metadata.shared,
        compiled.asm["ttgir"],
        compiled.asm["ptx"],
        {
            name: len(re.findall(pattern, compiled.asm["ptx"]))
            for name, pattern in INSTRUCTIONS.items()
        },
        capability,
    )


def programs_a_multiprocessor(
    compiled: Compiled, num_warps: int, capability: int
) -> int:
    """How many programs fit at once, by registers, shared memory and warps."""
    # registers are given out by 8 a thread, 1 KB of memory is kept for each program
    registers = -(-compiled.registers // 8) * 8 * 32 * num_warps
    return min(
        REGISTERS // registers,
        MULTIPROCESSOR_MEMORY[capability] // (compiled.shared + 1024),
        MULTIPROCESSOR_WARPS[capability] // num_warps,
        MULTIPROCESSOR_PROGRAMS[capability],
    )


def transposed_accumulators(compiled: Compiled) -> list[str]:
    """Lines that transpose the result of a product.

    Triton 3.4 to 3.7.0 miscompiles products of such operands on Hopper; the kernels
    compute the transposed product from its inputs instead.
    """
    return [
        line
        for line in compiled.ttgir.splitlines()
        if "tt.trans" in line and re.search(r"#mma\w*>\s*->", line)
    ]


def waits(compiled: Compiled) -> list[int]:
    """How many groups of copies each wait inside a loop leaves in flight.

    0: the copies for a turn of the loop are waited for as soon as they are asked for.
    """
    found, loops, depth = [], [], 0
    for line in compiled.ttgir.splitlines():
        if "ttg.async_wait" in line and loops:
            found.append(int(re.search(r"num = (\d+)", line)[1]))
        if "scf.for" in line:
            loops.append(depth)
        depth += line.count("{") - line.count("}")
        while loops and depth <= loops[-1]:
            loops.pop()
    return found


def serialized_products(compiled: Compiled) -> bool:
    """Whether ptxas waits for each of Hopper's products before it starts the next."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(compiled.ptx)
        file.flush()
        said = subprocess.run(
            [
                *(TOOLS / "ptxas", "-v", f"-arch=sm_{compiled.capability}a"),
                *(file.name, "-o", "/dev/null"),
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stderr
    return "serialized" in said
