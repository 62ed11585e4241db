"""Files of checkpoints, read and written without fairseq: whole, safe, named."""
