"""What ``data_prep`` wrote, read without fairseq, and the fingerprints of data."""
