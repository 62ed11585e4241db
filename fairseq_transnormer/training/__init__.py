"""A configuration as a training: composed, laid out over workers, started.

Importing a file of it imports no fairseq, so that --help answers in a moment.
"""
