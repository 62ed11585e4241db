"""Names of what is measured, shared by the benchmarks and their reports."""

# attention_scaling: without autograd, and as in training
FORWARD, TRAINING = "forward", "forward and backward"
# generation_cost: a decoding step, and taking in the prompt
STEP, PREFILL = "one token", "prefill"
