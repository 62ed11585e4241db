"""Stand-ins have the rules that they say, and the form of the arena's folders."""

import numpy as np

from data_prep.folders import verify
from data_prep.long_range_arena.lra_stand_ins import LETTERS, main
from fairseq_transnormer.data.labelled_sequences import LabelledSequences


def examples(folder, split="valid"):
    found = LabelledSequences(folder, split)
    return [found[i] for i in range(len(found))]


def most_frequent(tokens):
    return np.bincount(tokens.numpy(), minlength=256).argmax()


def test_labels_follow_the_rules(tmp_path):
    assert main(["--dest", str(tmp_path), "--counts", "4", "200", "4"]) == 0
    for example in examples(tmp_path / "text"):
        assert most_frequent(example.tokens[0]) == LETTERS[example.label]
    for example in examples(tmp_path / "retrieval"):
        first, second = map(most_frequent, example.tokens)
        assert (first == second) == bool(example.label)
    pictures = examples(tmp_path / "image")
    right = [p.tokens[0].float().mean() // 25.6 == p.label for p in pictures]
    assert np.mean(right) > 0.9
    for name in ("text", "image", "retrieval"):
        assert verify.main([str(tmp_path / name)]) == 0
        labels = [each.label for each in examples(tmp_path / name)]
        assert np.bincount(labels).min() > 5


def test_the_seed_is_all_that_the_data_depend_on(tmp_path):
    for folder, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        counts = ["--counts", "9", "2", "2", "--longest", "99"]
        assert main(["--dest", str(tmp_path / folder), "--seed", seed, *counts]) == 0
    name = "text/train.tokens.0.bin"
    a, b, c = ((tmp_path / folder / name).read_bytes() for folder in "abc")
    assert a == b != c
