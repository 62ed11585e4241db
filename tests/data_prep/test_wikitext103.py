"""WikiText-103: equal to fairseq's own preparation, from every form of the corpus."""

import json
import shutil

import pytest
from fairseq import options
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
from fairseq_cli import preprocess

from data_prep.folders import verify
from data_prep.wikitext import wikitext103

from .binary_reading import read_dictionary, read_ids

SPLITS = ("train", "valid", "test")


@pytest.fixture
def by_fairseq(tmp_path):
    """Runs fairseq-preprocess --only-source on text files."""

    def run(paths, *more):
        folder = tmp_path / "by_fairseq"
        preprocess.main(
            options.get_preprocessing_parser().parse_args(
                ["--only-source", "--destdir", str(folder), *more]
                + ["--trainpref", str(paths["train"])]
                + ["--validpref", str(paths["valid"])]
                + ["--testpref", str(paths["test"])]
            )
        )
        return folder

    return run


def alm(dest, source, *more):
    """Prepares the cut-down corpus by words."""
    arguments = ["alm", "--dest", dest, "--from-dir", source, "--allow-other-sizes"]
    return wikitext103.main([str(argument) for argument in [*arguments, *more]])


def same_files(one, other, names):
    """Whether the files of these names are equal byte for byte."""
    return all(
        (one / name).read_bytes() == (other / name).read_bytes() for name in names
    )


def test_alm_equals_fairseq_preprocess(tmp_path, original_files, by_fairseq):
    dest = tmp_path / "alm"
    assert alm(dest, original_files, "--workers", 2) == 0
    reference = by_fairseq({s: original_files / f"wiki.{s}.tokens" for s in SPLITS})
    binaries = [f"{split}.{end}" for split in SPLITS for end in ("bin", "idx")]
    assert same_files(dest, reference, ["dict.txt", *binaries])
    report = json.loads((dest / "report.json").read_text())
    assert report["splits"]["train"]["lines"] == 2100
    assert report["splits"]["train"]["tokens"] == sum(map(len, read_ids(dest, "train")))
    assert report["dictionary_size"] == len(read_dictionary(dest))
    assert not (tmp_path / "alm.partial").exists()
    assert not any(path.name.startswith(".") for path in dest.iterdir())


@pytest.mark.parametrize("form", ["folder", "saved", "parquet", "shards", "hub"])
def test_every_form_gives_the_same_files(
    tmp_path, original_files, hub_dataset, form, monkeypatch
):
    expected = tmp_path / "expected"
    assert alm(expected, original_files, "--workers", 1) == 0
    dest, source = tmp_path / "dest", tmp_path / "source"
    arguments = ["alm", "--dest", str(dest), "--allow-other-sizes", "--workers", "1"]
    if form == "folder":
        shutil.move(original_files, source / "wikitext-103")
    elif form == "saved":
        hub_dataset.save_to_disk(str(source))
    elif form == "hub":  # stands in for the network only
        import datasets

        def load_dataset(name, config, revision):
            assert (name, config) == ("Salesforce/wikitext", "wikitext-103-v1")
            assert revision == "b08601e04326c79dfdd32d625aee71d232d685c3"
            return hub_dataset

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    else:
        folder = source / "wikitext-103-v1"
        folder.mkdir(parents=True)
        for split, rows in hub_dataset.items():
            count = 2 if form == "shards" and split == "train" else 1
            for number in range(count):
                name = f"{split}-{number:05}-of-{count:05}.parquet"
                shard = rows.shard(count, number, contiguous=True)
                shard.to_parquet(str(folder / name))
    if form != "hub":
        arguments += ["--from-dir", str(source)]
    assert wikitext103.main(arguments) == 0
    names = ["dict.txt", "train.bin", "train.idx", "valid.bin", "test.bin", "test.idx"]
    assert same_files(dest, expected, names)


def test_blm_equals_fairseqs_bpe(tmp_path, raw_files, gpt2_dir):
    dest = tmp_path / "blm"
    arguments = ["blm", "--dest", dest, "--from-dir", raw_files, "--allow-other-sizes"]
    arguments += ["--gpt2-bpe-dir", gpt2_dir, "--workers", 1]
    assert wikitext103.main([str(argument) for argument in arguments]) == 0

    lines = (dest / "dict.txt").read_text().splitlines()
    assert len(lines) == 50_260
    assert [line.split()[0] for line in lines[:2]] == ["0", "1"]
    assert [line.split()[0] for line in lines[-3:]] == [
        f"madeupword000{number}" for number in range(3)
    ]
    dictionary = read_dictionary(dest)
    dictionary.add_symbol("<mask>")
    assert len(dictionary) == 50_265

    bpe = get_encoder(str(dest / "encoder.json"), str(dest / "vocab.bpe"))
    for split in SPLITS:
        with open(raw_files / f"wiki.{split}.raw", encoding="utf-8") as file:
            text = [line.strip() for line in file]
        expected = [
            dictionary.encode_line(
                " ".join(map(str, bpe.encode(line))), add_if_not_exist=False
            ).tolist()
            for line in text
        ]
        assert read_ids(dest, split) == expected
    assert verify.main([str(dest)]) == 0
