"""``python -m benchmarks COMMAND``: every benchmark, and the page made of them."""

import sys

from fairseq_transnormer.cli import Subcommand, run

# module -> command -> what it measures
MODULES = {
    "ops": {
        "ops": "the ops and their peers, forward and backward",
        "smoke": "each kind of kernel once, compared with float64",
    },
    "launch_sweep": {
        "launch_sweep": "the fastest form and stages of linear attention on a GPU"
    },
    "training_step": {
        "training_step": "a training step, by its parts",
    },
    "update_cost": {
        "update_cost": "an update of the paper's model, as fairseq trains it and as "
        "we do",
    },
    "lra_speed": {"lra_speed": "Long-Range Arena's speed and memory"},
    "generation": {
        "generation_cost": "time and memory of a generated token",
        "token_cost": "a token in transformers, compared with Llama",
        "image_generation": "images a second, pixel by pixel",
    },
    "linear_transformers": {
        "attention_lengths": "time and memory of one attention over the length",
        "linear_attention_forms": "forms of linear attention over length and width",
    },
    "cost": {"cost": "the least that the paper's trainings take, by data sheets"},
    "report": {"report": "one page of measured JSON"},
    "gpu_check": {"gpu_check": "tests, benchmarks and short trainings on one GPU"},
}
COMMANDS = {
    name: Subcommand(f"benchmarks.{module}", summary, name)
    for module, commands in MODULES.items()
    for name, summary in commands.items()
}


def main(arguments: list[str] | None = None) -> int:
    """Run a benchmark; returns its exit code."""
    return run(
        "python -m benchmarks",
        "Speed and memory of this package and its peers; each writes a JSON file.",
        COMMANDS,
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
