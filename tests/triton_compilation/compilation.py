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
SHARED_MEMORY = {80: 166912, 86: 101376, 90: 232448}
CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


@dataclass
class Compiled:
    """registers and stack: of a thread (bytes of spills); shared: bytes a program."""

    registers: int
    stack: int
    shared: int
    ttgir: str


def compile_kernel(
    kernel, types, constants, *, capability, num_warps, num_stages, aligned=True
) -> Compiled:
    """Compile ``kernel`` ahead of time.

    Args:
        kernel: a triton.jit function.
        types: Triton type of each argument that is no constant, e.g. {"query": "*bf16",
            "length": "i32"}, by name.
        constants: the other arguments' values, by name.
        capability: 80, 86 or 90.
        num_warps, num_stages: as at launch.
        aligned: tell the compiler that pointers and strides are multiples of 16, as it
            finds at run time; else it can neither vectorise nor pipeline.
    """
    signature, constexprs, attributes = {}, {}, {}
    for i, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
            constexprs[(i,)] = constants[name]
        else:
            signature[name] = types[name]
            if aligned and (types[name].startswith("*") or "stride" in name):
                attributes[(i,)] = [["tt.divisibility", 16]]
    compiled = triton.compile(
        ASTSource(kernel, signature, constexprs, attributes),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": num_warps, "num_stages": num_stages},
    )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        usage = subprocess.run(
            [CUOBJDUMP, "--dump-resource-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    return Compiled(
        int(found[1]), int(found[2]), compiled.metadata.shared, compiled.asm["ttgir"]
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
