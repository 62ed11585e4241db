"""Where the dictionary and the subword files of a checkpoint are looked for."""

import pytest

from fairseq_transnormer.data.subword_files import (
    GPT2_UNITS,
    SENTENCEPIECE_MODEL,
    dictionary_folder,
    find_subword_files,
)
from tests.messages import refuses


@pytest.fixture
def folders(tmp_path):
    made = [tmp_path / name for name in ("data", "checkpoints")]
    for folder in made:
        folder.mkdir()
    return made


def test_the_dictionary_is_with_the_data_or_with_the_checkpoint(folders):
    data, checkpoints = folders
    path = checkpoints / "model.pt"
    with refuses(ValueError, "dict.txt", data, checkpoints, "--data"):
        dictionary_folder(path, str(data))
    (checkpoints / "dict.txt").touch()
    for trained_on in (str(data), "", None):
        assert dictionary_folder(path, trained_on) == checkpoints
    (data / "dict.txt").touch()
    # of several folders of shards, the first has it
    assert dictionary_folder(path, f"{data}:elsewhere") == data


def test_a_given_folder_is_the_only_one(folders):
    data, checkpoints = folders
    (data / "dict.txt").touch()
    path = data / "model.pt"
    with refuses(ValueError, "dict.txt", checkpoints):
        dictionary_folder(path, str(data), checkpoints)
    assert dictionary_folder(path, "elsewhere", data) == data


def test_the_first_folder_with_subword_files_has_them(folders):
    first, second = folders
    assert find_subword_files(folders) == ()
    (second / SENTENCEPIECE_MODEL).touch()
    assert find_subword_files(folders) == (second / SENTENCEPIECE_MODEL,)
    for name in GPT2_UNITS:
        (first / name).touch()
    assert find_subword_files(folders) == tuple(first / name for name in GPT2_UNITS)
    (first / SENTENCEPIECE_MODEL).touch()
    assert find_subword_files(folders) == (first / SENTENCEPIECE_MODEL,)


@pytest.mark.parametrize("missing", GPT2_UNITS)
def test_one_of_gpt2s_files_needs_the_other(folders, missing):
    (present,) = {*GPT2_UNITS} - {missing}
    (folders[0] / present).touch()
    with refuses(ValueError, folders[0], *GPT2_UNITS):
        find_subword_files(folders)
