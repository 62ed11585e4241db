"""WikiText-103: fairseq's own preparation from every form, and damaged sources."""

import json
import shutil

import pytest
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder

from data_prep.folders.encoders import GPT2_SHA256
from data_prep.wikitext.wikitext103 import check_sizes
from fairseq_transnormer.data import SPLITS
from tests.messages import refuses

from .binary_reading import differing, preprocessed, read_dictionary, read_ids
from .commands import verify, wikitext103
from .glue_copies import write_hub_layout
from .local_server import served


def alm(dest, source, *more):
    """Prepares the cut-down corpus by words."""
    arguments = ["alm", "--dest", dest, "--from-dir", source, "--allow-other-sizes"]
    return wikitext103([str(argument) for argument in [*arguments, *more]])


def test_alm_equals_fairseq_preprocess(tmp_path, original_files):
    dest = tmp_path / "alm"
    assert alm(dest, original_files, "--workers", 2) == 0
    paths = {split: original_files / f"wiki.{split}.tokens" for split in SPLITS}
    assert not differing(dest, preprocessed(tmp_path / "by_fairseq", paths))
    report = json.loads((dest / "report.json").read_text())
    assert report["splits"]["train"]["lines"] == 2100
    assert report["splits"]["train"]["tokens"] == sum(map(len, read_ids(dest, "train")))
    assert report["dictionary_size"] == len(read_dictionary(dest))
    assert not any(path.name.startswith(".") for path in dest.iterdir())


@pytest.mark.parametrize("form", ["folder", "parquet", "shards", "hub"])
def test_every_form_gives_the_same_files(
    tmp_path, original_files, hub_dataset, form, monkeypatch
):
    expected = tmp_path / "expected"
    assert alm(expected, original_files, "--workers", 1) == 0
    dest, source = tmp_path / "dest", tmp_path / "source"
    arguments = ["alm", "--dest", str(dest), "--allow-other-sizes", "--workers", "1"]
    if form == "folder":
        shutil.move(original_files, source / "wikitext-103")
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
    assert wikitext103(arguments) == 0
    assert not differing(dest, expected)


def test_blm_equals_fairseqs_bpe(tmp_path, raw_files, gpt2_dir):
    dest = tmp_path / "blm"
    arguments = ["blm", "--dest", dest, "--from-dir", raw_files, "--allow-other-sizes"]
    arguments += ["--gpt2-bpe-dir", gpt2_dir, "--workers", 1]
    assert wikitext103([str(argument) for argument in arguments]) == 0

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
    assert verify([str(dest)]) == 0


def test_expected_sizes_are_checked(tmp_path, original_files, fails):
    dest = tmp_path / "alm"
    arguments = ["alm", "--dest", dest, "--from-dir", original_files]
    parts = ["267,744", "entries", "--allow-other-sizes"]
    fails(wikitext103, arguments, *parts, dest=dest)
    assert not [*tmp_path.glob("alm*")]


def test_published_sizes_pass_the_check():
    check_sizes("alm", "valid", {"lines": 3760, "tokens": 217_646})
    check_sizes("blm", "test", {"lines": 4358, "tokens": 1})
    with refuses(ValueError, "test", "tokens", "245,569", "245,568"):
        check_sizes("alm", "test", {"lines": 4358, "tokens": 245_568})


def test_missing_file_is_named(tmp_path, original_files, fails):
    (original_files / "wiki.valid.tokens").unlink()
    dest = tmp_path / "alm"
    arguments = ["alm", "--dest", dest, "--from-dir", original_files]
    fails(wikitext103, arguments, original_files / "wiki.valid.tokens", dest=dest)


def test_missing_or_useless_folder(tmp_path, fails):
    dest = tmp_path / "alm"
    arguments = ["alm", "--dest", dest, "--from-dir", tmp_path / "nowhere"]
    (tmp_path / "nowhere").mkdir()
    fails(wikitext103, arguments, tmp_path / "nowhere", "wikitext-103-v1", dest=dest)


def test_empty_split(tmp_path, original_files, fails):
    (original_files / "wiki.valid.tokens").write_text(" \n \n")
    dest = tmp_path / "alm"
    arguments = ["alm", "--dest", dest, "--from-dir", original_files]
    arguments += ["--allow-other-sizes"]
    fails(wikitext103, arguments, "valid: empty split", dest=dest)


@pytest.mark.parametrize("damage", ["truncated", "inside", "column"])
def test_damaged_parquet(tmp_path, hub_dataset, fails, damage):
    source, dest = tmp_path / "source", tmp_path / "alm"
    if damage == "column":
        hub_dataset["test"] = hub_dataset["test"].rename_column("text", "page")
    write_hub_layout(source, hub_dataset)
    path = source / "test-00000-of-00001.parquet"
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-20])
    elif damage == "inside":
        content = path.read_bytes()
        path.write_bytes(content[:4] + bytes(len(content) - 50) + content[-46:])
    arguments = ["alm", "--dest", dest, "--from-dir", source, "--allow-other-sizes"]
    fails(wikitext103, arguments, "cannot be read", dest=dest)


def test_tokenised_text_is_no_raw_text(tmp_path, raw_files, gpt2_dir, fails):
    path = raw_files / "wiki.valid.raw"
    path.write_text(" the <unk> of the <unk>\n" * 60)
    dest = tmp_path / "blm"
    arguments = ["blm", "--dest", dest, "--from-dir", raw_files, "--allow-other-sizes"]
    arguments += ["--gpt2-bpe-dir", gpt2_dir]
    fails(wikitext103, arguments, "<unk>", "raw", dest=dest)


def test_gpt2_files_are_checked(tmp_path, raw_files, gpt2_dir, fails):
    dest, bpe = tmp_path / "blm", tmp_path / "bpe"
    bpe.mkdir()
    arguments = ["blm", "--dest", dest, "--from-dir", raw_files, "--gpt2-bpe-dir", bpe]
    fails(wikitext103, arguments, bpe / "encoder.json", "no such file", dest=dest)
    shutil.copy(gpt2_dir / "encoder.json", bpe)
    (bpe / "vocab.bpe").write_bytes((gpt2_dir / "vocab.bpe").read_bytes() + b"x")
    parts = [bpe / "vocab.bpe", "checksum", GPT2_SHA256["vocab.bpe"]]
    fails(wikitext103, arguments, *parts, dest=dest)


def test_gpt2_files_are_downloaded_and_checked(
    tmp_path, raw_files, gpt2_dir, fails, monkeypatch, waits
):
    dest = tmp_path / "blm"
    arguments = ["blm", "--dest", dest, "--from-dir", raw_files, "--allow-other-sizes"]
    arguments = [str(argument) for argument in arguments]
    monkeypatch.setattr(
        "data_prep.wikitext.wikitext103.GPT2_URL", "http://127.0.0.1:9/closed"
    )
    parts = ["http://127.0.0.1:9/closed/encoder.json", "--gpt2-bpe-dir"]
    fails(wikitext103, arguments, *parts, dest=dest)
    with served({"/encoder.json": b"{}"}) as (address, _):
        monkeypatch.setattr("data_prep.wikitext.wikitext103.GPT2_URL", address)
        parts = ["encoder.json", GPT2_SHA256["encoder.json"]]
        fails(wikitext103, arguments, *parts, dest=dest)
    files = {f"/{name}": (gpt2_dir / name).read_bytes() for name in GPT2_SHA256}
    with served(files, broken=1) as (address, asked):
        monkeypatch.setattr("data_prep.wikitext.wikitext103.GPT2_URL", address)
        assert wikitext103(arguments) == 0
    assert asked == ["/encoder.json", "/encoder.json", "/vocab.bpe"]
    for name in GPT2_SHA256:
        assert (dest / name).read_bytes() == (gpt2_dir / name).read_bytes()
