"""A user's mistake ends in one line, never in a traceback."""

import json
import sys

import numpy as np
import pytest

from data_prep.documentation import debian_docs, stdlib_corpus
from data_prep.folders import verify
from data_prep.folders.destination import listed_files
from data_prep.folders.errors import InputError, run_command
from data_prep.labelled_texts import classification, glue
from data_prep.long_range_arena import lra, lra_stand_ins
from data_prep.own_text import text
from data_prep.symbols import digits
from data_prep.wikitext import wikitext103
from tests.messages import assert_names, refuses

from .small_corpora import article_lines

SHA = "0" * 64
DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("[]", ["files"]),
        ("3", ["files"]),
        (DEEP, ["report.json"]),
        ('{"files": ' + DEEP, ["report.json"]),
        ("\udcff", ["report.json"]),
        ('{"files": {}}' + "\0", ["report.json"]),
        ('{"files": []}', ["files", "a list", "object"]),
        ('{"files": {"dict.txt": 3}}', ["dict.txt", 3, "sha256"]),
        ('{"files": {"dict.txt": {"bytes": 3}}}', ["dict.txt", "sha256", None]),
        ('{"files": {"dict.txt": {"sha256": 5, "bytes": 3}}}', ["sha256", 5]),
        (
            f'{{"files": {{"dict.txt": {{"sha256": "{SHA}", "bytes": "9"}}}}}}',
            ["bytes", "'9'"],
        ),
        (
            f'{{"files": {{"dict.txt": {{"sha256": "{SHA}", "bytes": -1}}}}}}',
            ["bytes", -1],
        ),
        *(
            (f'{{"files": {{"{name}": {{"sha256": "{SHA}", "bytes": 1}}}}}}', [name])
            for name in ("../secret", "/etc/passwd", "a/../../b", "./dict.txt", ".")
        ),
    ],
)
def test_malformed_report(word_folder, fails, content, parts):
    path = word_folder / "report.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    message = fails(verify.main, [word_folder], path, code=1)
    assert_names(message, *parts)


def test_names_that_lead_elsewhere():
    record = {"bytes": 1, "sha256": SHA}
    for name in ("", "..", "a\0b", "a//b", "a/"):
        with refuses(InputError, "files"):
            listed_files({"files": {name: record}}, "report.json")
    assert listed_files({"files": {"input0/a b": record}}, "report.json")


@pytest.fixture
def sequences(tmp_path):
    """A folder of labelled sequences and its manifest."""
    command = ["--dest", str(tmp_path / "d"), "--counts", "4", "2", "2"]
    assert lra_stand_ins.main([*command, "--longest", "8"]) == 0
    folder = tmp_path / "d" / "text"
    return folder, json.loads((folder / "manifest.json").read_text())


@pytest.mark.parametrize("name", ["sequences", "vocabulary", "classes", "splits"])
def test_malformed_manifest(sequences, fails, name):
    folder, manifest = sequences
    path = folder / "manifest.json"
    for value in (None, "2", -1, 0.5, [], True):
        path.write_text(json.dumps(manifest | {name: value}))
        assert_names(fails(verify.main, [folder], path, code=1), name, "allowed")


def test_manifest_of_another_kind(sequences, fails):
    path = sequences[0] / "manifest.json"
    for content in (DEEP, "[]", "{}", '{"format": []}', "\udcff"):
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
        fails(verify.main, [sequences[0]], path, code=1)


@pytest.mark.parametrize("name", ["valid.labels.npy", "valid.offsets.0.npy"])
def test_arrays_of_another_kind(sequences, fails, name):
    folder, manifest = sequences
    manifest["files"].pop(name)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    arrays = [np.zeros(()), np.zeros((2, 2), int), np.array(["a"]), np.zeros(2)]
    for array in (*arrays, b"", b"xyz"):
        if isinstance(array, bytes):
            (folder / name).write_bytes(array)
        else:
            np.save(folder / name, array)
        fails(verify.main, [folder], folder / name, code=1)


def test_broken_dictionary_of_the_pretraining_data(tmp_path, labelled, fails):
    path = tmp_path / "data/dict.txt"
    path.mkdir(parents=True)
    given = ["--dest", tmp_path / "d", "--data", path.parent, *labelled]
    fails(classification.main, given, path, dest=tmp_path / "d")
    path.rmdir()
    for content in (b"a 3\na 2\n", b"a x\n", b"a\n", b"caf\xe9 1\n", b"a 1\n\n", b"\0"):
        path.write_bytes(content)
        fails(classification.main, given, path, dest=tmp_path / "d")


@pytest.fixture
def labelled(tmp_path):
    """--train and --valid with two classes."""
    options = []
    for split in ("train", "valid"):
        path = tmp_path / f"{split}.jsonl"
        rows = [{"text": f"a text {i}", "label": i % 2} for i in range(6)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        options += [f"--{split}", str(path)]
    return options


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ('{"text": ["a", "b"], "label": 1}', ["text", "a list"]),
        ('{"text": {"a": 1}, "label": 1}', ["text", "an object"]),
        ('{"text": "a", "label": {"a": 1}}', ["label", "an object"]),
        ('{"text": "a", "label": [1]}', ["label", "a list"]),
        ('{"text": "a\\ud800b", "label": 1}', ["text", "surrogate"]),
        ('{"text": ' + DEEP, ["JSON"]),
        ('{"text": "a", "label": NaN}', ["label", "nan"]),
    ],
    ids=range(7),
)
@pytest.mark.parametrize("skip", [False, True])
def test_jsonl_values_that_are_no_text(
    tmp_path, labelled, pretraining_data, fails, capsys, line, parts, skip
):
    path = tmp_path / "train.jsonl"
    path.write_text(path.read_text() + line + "\n")
    given = ["--dest", tmp_path / "d", "--data", pretraining_data, *labelled]
    if skip:
        code = classification.main([*map(str, given), "--skip-malformed"])
        assert code == 0
        assert_names(capsys.readouterr().out, "line 7", *parts)
        return
    message = fails(classification.main, given, path, dest=tmp_path / "d")
    assert_names(message, "line 7", *parts)


def test_damaged_compressed_files(tmp_path, fails):
    (tmp_path / "src").mkdir()
    path = tmp_path / "src" / "train-images-idx3-ubyte.gz"
    # a good header, then no deflate stream
    path.write_bytes(b"\x1f\x8b\x08" + b"\0" * 7 + b"\xff" * 30)
    (tmp_path / "src" / "t10k-images-idx3-ubyte").write_bytes(b"")
    given = ["--dest", tmp_path / "d", "--source", "mnist", "--from-dir", path.parent]
    fails(digits.main, given, path, dest=tmp_path / "d")


@pytest.mark.parametrize("content", [b"no gzip", b"\x1f\x8b\x08" + b"\xff" * 30, b""])
def test_damaged_packages(tmp_path, fails, content):
    folder = tmp_path / "usr/share/doc/linux-doc-6.1/Documentation"
    folder.mkdir(parents=True)
    path = folder / "a.rst.gz"
    path.write_bytes(content)
    given = ["--dest", tmp_path / "d", "--from-dir", tmp_path]
    given += ["--allow-other-versions"]
    fails(debian_docs.main, given, "a.rst.gz" if content else "documentation")


def test_undecodable_metadata(tmp_path, fails):
    folder = tmp_path / "curv_contour_length_14" / "metadata"
    folder.mkdir(parents=True)
    (folder / "0.npy").write_bytes(b"imgs/0 sample_\xff.png 0 1\n")
    given = ["pathfinder", "--dest", tmp_path / "d", "--from-dir", tmp_path]
    fails(lra.main, given, "0.npy", dest=tmp_path / "d")


def test_text_that_no_encoding_has(tmp_path, labelled, pretraining_data, fails):
    given = ["--dest", tmp_path / "d", "--data", pretraining_data, *labelled]
    given += ["--labels", "0", "1", "\udcff"]
    fails(classification.main, given, dest=tmp_path / "d")


PIECES = "--tokenizer sentencepiece --vocab-size 320"
BLM = "blm --from-dir {raw} --allow-other-sizes --workers 1"
# a command that needs most of what can be missing, and the packages that it names
MISSING = [
    (text, "--tokenizer word {splits}", "fairseq tqdm"),
    (
        text,
        "--tokenizer sentencepiece --vocab-size 320 {splits}",
        "sentencepiece fairseq",
    ),
    (wikitext103, f"{BLM} --gpt2-bpe-dir {{gpt2}}", "tiktoken fairseq"),
    (wikitext103, BLM, "pooch"),
    (wikitext103, "alm", "datasets"),
    (glue, "--data {units}", "datasets sentencepiece"),
    (classification, "--data {units} {labelled}", "sentencepiece fairseq"),
    (classification, "--data {gpt2} {labelled}", "tiktoken"),
    (digits, "", "sklearn fairseq"),
    (digits, "--source mnist", "datasets"),
    (lra, "image", "datasets"),
    (lra_stand_ins, "", "tqdm"),
    (stdlib_corpus, "", "tqdm"),
]


@pytest.fixture
def given(text_files, labelled, pretraining_data, gpt2_data, raw_files):
    splits = " ".join(f"--{split} {path}" for split, path in text_files.items())
    folders = {"units": pretraining_data, "gpt2": gpt2_data, "raw": raw_files}
    return folders | {"splits": splits, "labelled": " ".join(labelled)}


@pytest.mark.parametrize(("command", "arguments", "packages"), MISSING)
def test_missing_packages(
    tmp_path, given, monkeypatch, fails, command, arguments, packages
):
    words = [*arguments.format(**given).split(), "--dest", tmp_path / "d"]
    for missing in packages.split():
        with monkeypatch.context() as patch:
            for module in [*sys.modules]:
                if module.startswith(f"{missing}."):
                    patch.delitem(sys.modules, module)
            patch.setitem(sys.modules, missing, None)
            assert_names(fails(command.main, words), missing, "pip install")
        assert not any(path.is_file() for path in tmp_path.glob("d/**/*"))


def test_missing_packages_of_verify(word_folder, monkeypatch, fails):
    monkeypatch.setitem(sys.modules, "fairseq", None)
    message = fails(verify.main, [word_folder], code=1)
    assert_names(message, "fairseq", "pip install")


def test_a_missing_module_of_our_own_is_a_bug():
    def command():
        import data_prep.nothing  # noqa: F401

    with pytest.raises(ImportError):
        run_command("x", command)


def test_byte_order_mark_is_no_part_of_the_first_word(tmp_path, text_files, fails):
    plain = "\n".join(article_lines(0, 400)) + "\n"
    arguments = ["--tokenizer", "word"]
    for split, path in text_files.items():
        arguments += [f"--{split}", str(path)]
    text_files["train"].write_text(plain, encoding="utf-8")
    assert text.main(["--dest", str(tmp_path / "plain"), *arguments]) == 0
    text_files["train"].write_text(plain, encoding="utf-8-sig")
    assert text.main(["--dest", str(tmp_path / "marked"), *arguments]) == 0
    for name in ("dict.txt", "train.bin", "train.idx"):
        both = [(tmp_path / d / name).read_bytes() for d in ("plain", "marked")]
        assert both[0] == both[1]
    text_files["valid"].write_text("\ufeff\n", encoding="utf-8")
    given = ["--dest", tmp_path / "d", *arguments]
    fails(text.main, given, text_files["valid"], "empty", dest=tmp_path / "d")
