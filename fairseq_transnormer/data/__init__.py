"""What ``data_prep`` wrote, read without fairseq, and the fingerprints of data."""

# names of a prepared folder's files: train.bin, train.idx, valid.bin, ...
SPLITS = ("train", "valid", "test")
# what data_prep says of a folder that it made, each file's SHA-256 among it
REPORT = "report.json"
# the same for labelled sequences, and for texts before they are binary data
MANIFEST = "manifest.json"
