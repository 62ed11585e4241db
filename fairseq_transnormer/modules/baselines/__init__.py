"""The systems that TransNormer is compared with, one per file."""
