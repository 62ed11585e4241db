"""How a training is started: the batches of an update, a GPU's memory, the exit code.

Nothing here imports fairseq, so that scripts can ask in a moment.
"""
