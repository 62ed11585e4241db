"""Lines of text as fairseq's binary data."""

from pathlib import Path

from fairseq.data import Dictionary, indexed_dataset


def write_binary_data(
    folder: Path, dictionary: Dictionary, splits: dict[str, list[str]]
) -> Path:
    """Write dict.txt and each split's lines of symbols; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    dictionary.save(str(folder / "dict.txt"))
    for split, lines in splits.items():
        prefix = str(folder / split)
        builder = indexed_dataset.make_builder(
            prefix + ".bin", impl="mmap", vocab_size=len(dictionary)
        )
        for line in lines:
            builder.add_item(dictionary.encode_line(line, add_if_not_exist=False))
        builder.finalize(prefix + ".idx")
    return folder
