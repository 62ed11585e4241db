"""WikiText-103 as the paper's ALM and BLM read it."""
