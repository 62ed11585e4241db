"""Tables, presets and data: what is to be run."""
