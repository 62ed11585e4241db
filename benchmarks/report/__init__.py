"""Tables and charts of what the benchmarks measured: a section a benchmark."""
