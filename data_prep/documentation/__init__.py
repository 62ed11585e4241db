"""Corpora from documentation that is on every machine."""
