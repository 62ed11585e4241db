"""What must not change while the code is rewritten, frozen in values.json.

    python -m tests.proofs.make     writes values.json anew

A change that is meant (a file format, the place of Adam's eps) changes it in the same
commit, which says why. Processors round differently, so numbers have a tolerance;
prepared data are equal byte for byte. ``same_bits.sh`` compares the weights of two
commits bit for bit, on one machine.
"""
