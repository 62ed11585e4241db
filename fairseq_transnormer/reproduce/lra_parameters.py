"""Parameters of the Long-Range Arena's classifiers, as a Markdown table."""

import argparse
from types import SimpleNamespace

import torch

PREFIX = "lra_"
# task: longest sequence, token ids, classes, sequences
TASKS = {
    "text": (4096, 256, 2, 1),
    "listops": (2048, 15, 10, 1),
    "retrieval": (4096, 256, 2, 2),
    "pathfinder": (1024, 256, 2, 1),
    "image": (1024, 256, 10, 1),
}


def architectures() -> list[str]:
    """The paper-size ones."""
    from fairseq.models import MODEL_REGISTRY

    return [
        name
        for name in MODEL_REGISTRY
        if name.startswith(PREFIX) and not name.endswith("_tiny")
    ]


def count(architecture: str, task: str) -> int:
    """Parameters of an architecture for a task of the arena, positions included."""
    from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

    length, vocabulary, classes, sequences = TASKS[task]
    config = MODEL_DATACLASS_REGISTRY[architecture](
        max_positions=length, linformer_length=length
    )
    setup = SimpleNamespace(
        vocabulary_size=vocabulary, num_classes=classes, num_sequences=sequences
    )
    with torch.device("meta"):
        model = MODEL_REGISTRY[architecture].build_model(config, setup)
    return sum(parameter.numel() for parameter in model.parameters())


def main(arguments: list[str] | None = None) -> int:
    """Print the table; returns the exit code."""
    argparse.ArgumentParser(
        prog="python -m fairseq_transnormer analyse lra_parameters",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args(arguments)
    print(table())
    return 0


def table() -> str:
    """A row an architecture, a column a task; and what two layers have alone."""
    lines = [
        f"| `--arch` | {' | '.join(TASKS)} | without positions (listops) |",
        "|---|" + "--:|" * (len(TASKS) + 1),
    ]
    for name in architectures():
        counts = [count(name, task) for task in TASKS]
        alone = count(name, "listops") - TASKS["listops"][0] * 64
        shown = " | ".join(f"{n:,}" for n in [*counts, alone])
        lines.append(f"| `{name}` | {shown} |")
    return "\n".join(lines)
