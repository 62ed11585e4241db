"""Names of what is measured, shared by the benchmarks and their reports."""

# kernels: without autograd, and as in training; with Python's launches, and without
FORWARD, TRAINING = "forward", "forward and backward"
LAUNCHED, GRAPH = "launched", "CUDA graph"
# generation_cost: a decoding step, and taking in the prompt
STEP, PREFILL = "one token", "prefill"
# training_step: one layer; the step of a model without and with its output layer
LAYER, STACK, MODEL = "layer", "stack", "model"
# lra_speed
INFERENCE, TRAINING_STEP = "inference", "training"
# training_step: the peers of TransNormer
AS_SHIPPED, WITH_SDPA = "fairseq transformer_lm", "fairseq transformer_lm, SDPA"
# output_loss: the peer
ALL_LOGITS = "fairseq's cross_entropy"
# update_cost: how a language model is trained
FAIRSEQS, OURS, COMPILED = "fairseq's", "ours", "ours, compiled layers"
GRAPHED = "ours, layers as CUDA graphs"
