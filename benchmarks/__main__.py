"""``python -m benchmarks COMMAND``: every benchmark, and the pages made of them."""

import sys

from fairseq_transnormer.cli import Subcommand, run

COMMANDS = {
    "kernels": Subcommand(
        "benchmarks.kernels.command", "the ops beside their peers, forward and backward"
    ),
    "smoke": Subcommand(
        "benchmarks.kernels.smoke", "each kind of kernel once, compared with float64"
    ),
    "launch_sweep": Subcommand(
        "benchmarks.kernels.launch_sweep",
        "the fastest form and stages of linear attention on a GPU",
    ),
    "training_step": Subcommand(
        "benchmarks.training.training_step", "a whole update, by its parts"
    ),
    "gates": Subcommand(
        "benchmarks.training.gates", "layers by our kernels, and by torch.compile"
    ),
    "update_cost": Subcommand(
        "benchmarks.training.update_cost",
        "an update of the paper's model, as fairseq trains it and as we do",
    ),
    "output_loss": Subcommand(
        "benchmarks.training.output_loss", "the output layer and its loss"
    ),
    "optimizer_step": Subcommand(
        "benchmarks.training.optimizer_step", "Adam's step, fused and as fairseq has it"
    ),
    "compare_models": Subcommand(
        "benchmarks.training.compare_models", "the paper's systems, trained alike"
    ),
    "lra_speed": Subcommand(
        "benchmarks.training.lra_speed", "Long-Range Arena's speed and memory"
    ),
    "generation_cost": Subcommand(
        "benchmarks.generation.generation_cost", "time and memory of a generated token"
    ),
    "token_cost": Subcommand(
        "benchmarks.generation.token_cost",
        "a token in transformers, compared with Llama",
    ),
    "image_generation": Subcommand(
        "benchmarks.generation.image_generation", "images a second, pixel by pixel"
    ),
    "linear_attention_forms": Subcommand(
        "benchmarks.linear_transformers.linear_attention_forms",
        "forms of linear attention over length and head width",
    ),
    "attention_lengths": Subcommand(
        "benchmarks.linear_transformers.attention_lengths",
        "time and memory of one attention over the length",
    ),
    "chunk_sizes": Subcommand(
        "benchmarks.linear_transformers.chunk_sizes", "the chunked form over its chunks"
    ),
    "sampling_layer": Subcommand(
        "benchmarks.linear_transformers.sampling_layer",
        "one layer that generates, over the length",
    ),
    "cost_model": Subcommand(
        "benchmarks.cost_model.command", "what the paper's trainings cost, worked out"
    ),
    "cost_check": Subcommand(
        "benchmarks.cost_model.cpu_check", "steps on a CPU core beside the cost model"
    ),
    "layer_cost": Subcommand(
        "benchmarks.cost_model.layer_cost", "a layer's launches and bytes, counted"
    ),
    "step_profile": Subcommand(
        "benchmarks.cost_model.step_profile", "what the paper's steps wait for"
    ),
    "report": Subcommand(
        "benchmarks.report.command", "tables and charts of measured JSON"
    ),
    "gpu_check": Subcommand(
        "benchmarks.gpu_check", "tests, benchmarks and short trainings on one GPU"
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Run a benchmark; returns its exit code."""
    return run(
        "python -m benchmarks",
        "Speed and memory beside peers; each writes a JSON with device and versions.",
        COMMANDS,
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
