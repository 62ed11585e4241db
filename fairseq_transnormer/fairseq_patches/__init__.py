"""What changes the training of fairseq; the rest is in plugin/compatibility.py."""
