"""A language model of a folder of texts, from splits to curves, in one command."""
