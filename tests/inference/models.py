"""Tiny trained models: data and training through fairseq's own tools."""

import io
import random
import sys
from pathlib import Path

from fairseq.data import Dictionary, encoders

import fairseq_transnormer.plugin  # noqa: F401 (registers the models)
from tests.binary_data import write_binary_data
from tests.kept_configurations import kept
from tests.paths import USER_DIR

PLUGIN = str(USER_DIR)
SUBJECTS = "the river,an old king,the town,a small bird,her brother,the church,it"
VERBS = "crosses,found,was built near,left,looks at,became,does not see"
OBJECTS = "the bridge,a stone wall,two towers,the sea,his son,nothing,a red field"
ENDINGS = "in 1902,for many years,with the army,again,,before winter came,at night"


def sentences(count: int) -> list[str]:
    """Lines of 4 to 14 words; some words are rare."""
    draw = random.Random(0)
    lines = []
    for i in range(count):
        parts = [draw.choice(x.split(",")) for x in (SUBJECTS, VERBS, OBJECTS, ENDINGS)]
        lines.append(" ".join(parts).strip() + (" €" if i % 9 == 0 else " ."))
    return lines


def write_data(folder: Path, lines: list[str], dictionary: Dictionary) -> None:
    """The lines as train, and some of them as valid and test."""
    splits = {"train": lines, "valid": lines[:20], "test": lines[:6]}
    write_binary_data(folder, dictionary, splits)


def word_data(folder: Path) -> None:
    """Words as symbols."""
    lines = sentences(300)
    dictionary = Dictionary()
    for line in lines:
        dictionary.encode_line(line)
    dictionary.finalize()
    write_data(folder, lines, dictionary)


def sentencepiece_data(folder: Path) -> None:
    """Pieces of a sentencepiece model that spells the euro sign in bytes."""
    import sentencepiece

    lines = sentences(300)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line.replace("€", ".") for line in lines),
        model_writer=model,
        vocab_size=310,
        byte_fallback=True,
        minloglevel=2,
    )
    folder.mkdir(parents=True)
    path = folder / "sentencepiece.bpe.model"
    path.write_bytes(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    dictionary = Dictionary()
    for i in range(3, processor.get_piece_size()):
        dictionary.add_symbol(processor.id_to_piece(i))
    dictionary.finalize()
    config = encoders.sentencepiece_bpe.SentencepieceConfig(
        sentencepiece_model=str(path)
    )
    bpe = encoders.sentencepiece_bpe.SentencepieceBPE(config)
    write_data(folder, [bpe.encode(line) for line in lines], dictionary)


def run_fairseq(main, *arguments) -> None:
    """A fairseq command in this process, with the plugin."""
    argv = sys.argv
    sys.argv = ["fairseq", *map(str, arguments), "--user-dir", PLUGIN, "--cpu"]
    try:
        with kept():
            main()
    finally:
        sys.argv = argv


def train(data: Path, save_dir: Path, arch: str, *more) -> Path:
    """Train until texts are no noise; the checkpoint."""
    from fairseq_cli.train import cli_main

    # fmt: off
    run_fairseq(
        cli_main, data, "--task", "language_modeling", "--arch", arch,
        "--save-dir", save_dir, "--tokens-per-sample", 64, "--batch-size", 8,
        "--required-batch-size-multiple", 1, "--sample-break-mode", "none",
        "--optimizer", "adam", "--lr", "0.01", "--dropout", "0.0",
        "--max-update", 80, "--max-epoch", 100, "--disable-validation",
        "--no-epoch-checkpoints", "--save-interval", 1000, "--num-workers", 0,
        "--no-progress-bar", "--log-format", "none", "--seed", 3, *more,
    )
    # fmt: on
    return save_dir / "checkpoint_last.pt"
