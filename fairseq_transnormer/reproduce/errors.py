"""The mistake that a command reports in one line."""


class ReproduceError(ValueError):
    """A mistake in what was given, or in a file of a run."""
