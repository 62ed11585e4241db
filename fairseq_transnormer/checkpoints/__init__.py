"""Read and write checkpoints without fairseq, safely and completely."""
