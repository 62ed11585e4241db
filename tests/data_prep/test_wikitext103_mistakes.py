"""Mistakes and damage in WikiText-103's sources: one message, nothing made."""

import shutil
from unittest.mock import Mock

import pytest

from data_prep.folders.encoders import GPT2_SHA256
from data_prep.wikitext import wikitext103
from tests.messages import refuses

from .local_server import served


def test_expected_sizes_are_checked(tmp_path, original_files, fails):
    dest = tmp_path / "alm"
    arguments = ["alm", "--dest", dest, "--from-dir", original_files]
    parts = ["train", "1,801,350 lines", "2,100", "--allow-other-sizes"]
    fails(wikitext103.main, arguments, *parts, dest=dest)
    assert not (tmp_path / "alm.partial").exists()


def test_published_sizes_pass_the_check():
    wikitext103.check_sizes("alm", "valid", {"lines": 3760, "tokens": 217_646})
    wikitext103.check_sizes("blm", "test", {"lines": 4358, "tokens": 1})
    with refuses(wikitext103.InputError, "test", "245,569 tokens", "245,568"):
        wikitext103.check_sizes("alm", "test", {"lines": 4358, "tokens": 245_568})


def test_missing_file_is_named(tmp_path, original_files, fails):
    (original_files / "wiki.valid.tokens").unlink()
    dest = tmp_path / "alm"
    arguments = ["alm", "--dest", dest, "--from-dir", original_files]
    fails(wikitext103.main, arguments, original_files / "wiki.valid.tokens", dest=dest)


def test_missing_or_useless_folder(tmp_path, fails):
    dest = tmp_path / "alm"
    arguments = ["alm", "--dest", dest, "--from-dir", tmp_path / "nowhere"]
    fails(wikitext103.main, arguments, "--from-dir", "nowhere", dest=dest)
    (tmp_path / "nowhere").mkdir()
    fails(wikitext103.main, arguments, "wiki.train.tokens", "parquet", dest=dest)


def test_empty_split(tmp_path, original_files, fails):
    (original_files / "wiki.valid.tokens").write_text(" \n \n")
    dest = tmp_path / "alm"
    arguments = ["alm", "--dest", dest, "--from-dir", original_files]
    arguments += ["--allow-other-sizes"]
    fails(wikitext103.main, arguments, "valid: empty split", dest=dest)


def test_not_utf8_names_byte_and_line(tmp_path, original_files, fails):
    path = original_files / "wiki.test.tokens"
    path.write_bytes(b"good line\nbad \xff line\n")
    dest = tmp_path / "alm"
    arguments = ["alm", "--dest", dest, "--from-dir", original_files]
    parts = [path, "0xff at offset 14", "line 2"]
    fails(wikitext103.main, arguments, *parts, dest=dest)


def write_parquet(folder, hub_dataset):
    folder.mkdir()
    for split, rows in hub_dataset.items():
        rows.to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))


@pytest.mark.parametrize("damage", ["truncated", "inside", "shard", "column"])
def test_damaged_parquet(tmp_path, hub_dataset, fails, damage):
    source, dest = tmp_path / "source", tmp_path / "alm"
    if damage == "column":
        hub_dataset["test"] = hub_dataset["test"].rename_column("text", "page")
    write_parquet(source, hub_dataset)
    path = source / "test-00000-of-00001.parquet"
    part = path.name
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-20])
    elif damage == "inside":
        content = path.read_bytes()
        path.write_bytes(content[:4] + bytes(len(content) - 50) + content[-46:])
        part = "cannot be read"
    elif damage == "shard":
        path.rename(source / "test-00000-of-00002.parquet")
        part = "1 of 2 test-*.parquet"
    else:
        part = "column 'text'"
    arguments = ["alm", "--dest", dest, "--from-dir", source, "--allow-other-sizes"]
    fails(wikitext103.main, arguments, part, dest=dest)


def test_damaged_saved_dataset(tmp_path, hub_dataset, fails):
    source, dest = tmp_path / "source", tmp_path / "alm"
    hub_dataset.save_to_disk(str(source))
    (arrow,) = (source / "test").glob("*.arrow")
    arrow.write_bytes(arrow.read_bytes()[:100])
    arguments = ["alm", "--dest", dest, "--from-dir", source, "--allow-other-sizes"]
    fails(wikitext103.main, arguments, source, "cannot be read", dest=dest)


def test_saved_dataset_without_a_split(tmp_path, hub_dataset, fails):
    source, dest = tmp_path / "source", tmp_path / "alm"
    del hub_dataset["validation"]
    hub_dataset.save_to_disk(str(source))
    arguments = ["alm", "--dest", dest, "--from-dir", source]
    fails(wikitext103.main, arguments, source, "split validation", dest=dest)


def test_tokenised_text_is_no_raw_text(tmp_path, raw_files, gpt2_dir, fails):
    path = raw_files / "wiki.valid.raw"
    path.write_text(" the <unk> of the <unk>\n" * 60)
    dest = tmp_path / "blm"
    arguments = ["blm", "--dest", dest, "--from-dir", raw_files, "--allow-other-sizes"]
    arguments += ["--gpt2-bpe-dir", gpt2_dir]
    fails(wikitext103.main, arguments, "<unk>", "wikitext-103-raw-v1", dest=dest)


def test_gpt2_files_are_checked(tmp_path, raw_files, gpt2_dir, fails):
    dest, bpe = tmp_path / "blm", tmp_path / "bpe"
    bpe.mkdir()
    arguments = ["blm", "--dest", dest, "--from-dir", raw_files, "--gpt2-bpe-dir", bpe]
    fails(wikitext103.main, arguments, bpe / "encoder.json", "no such file", dest=dest)
    shutil.copy(gpt2_dir / "encoder.json", bpe)
    (bpe / "vocab.bpe").write_bytes((gpt2_dir / "vocab.bpe").read_bytes() + b"x")
    parts = [bpe / "vocab.bpe", "checksum", GPT2_SHA256["vocab.bpe"]]
    fails(wikitext103.main, arguments, *parts, dest=dest)


def test_gpt2_files_are_downloaded_and_checked(
    tmp_path, raw_files, gpt2_dir, fails, monkeypatch, waits
):
    dest = tmp_path / "blm"
    arguments = ["blm", "--dest", dest, "--from-dir", raw_files, "--allow-other-sizes"]
    arguments = [str(argument) for argument in arguments]
    monkeypatch.setattr(wikitext103, "GPT2_URL", "http://127.0.0.1:9/closed")
    parts = ["http://127.0.0.1:9/closed/encoder.json", "--gpt2-bpe-dir"]
    fails(wikitext103.main, arguments, *parts, dest=dest)
    with served({"/encoder.json": b"{}"}) as (address, _):
        monkeypatch.setattr(wikitext103, "GPT2_URL", address)
        parts = ["encoder.json", GPT2_SHA256["encoder.json"]]
        fails(wikitext103.main, arguments, *parts, dest=dest)
    files = {f"/{name}": (gpt2_dir / name).read_bytes() for name in GPT2_SHA256}
    with served(files, broken=1) as (address, asked):
        monkeypatch.setattr(wikitext103, "GPT2_URL", address)
        assert wikitext103.main(arguments) == 0
    assert asked == ["/encoder.json", "/encoder.json", "/vocab.bpe"]
    for name in GPT2_SHA256:
        assert (dest / name).read_bytes() == (gpt2_dir / name).read_bytes()


def test_unreachable_hub_names_the_way_out(tmp_path, fails, monkeypatch, waits):
    import datasets

    error = Mock(side_effect=ConnectionError("cannot reach it"))
    monkeypatch.setattr(datasets, "load_dataset", error)
    command, dest = ["alm", "--dest", tmp_path / "alm"], tmp_path / "alm"
    fails(wikitext103.main, command, "Salesforce/wikitext", "--from-dir", dest=dest)
