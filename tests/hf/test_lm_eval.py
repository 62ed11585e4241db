"""lm-evaluation-harness: its perplexities of a local file are those that we compute."""

import math

import pytest
import torch

from tests.inference.models import sentences

TASK = """
task: own_text
dataset_path: text
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list: [{{metric: word_perplexity}}, {{metric: byte_perplexity}}]
"""
# the harness itself puts a start in front of a text that is only scored
MODEL = {"device": "cpu", "dtype": "float32", "add_bos_token": False}


def evaluated(folder, texts, tmp_path, monkeypatch) -> dict[str, float]:
    """The harness's figures for lines of text."""
    lm_eval = pytest.importorskip(
        "lm_eval", reason="pip install 'fairseq-transnormer[lm-eval]'"
    )
    from lm_eval.tasks import TaskManager

    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "text.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    task = TASK.format(file=tmp_path / "text.txt")
    (tmp_path / "own_text.yaml").write_text(task)
    found = lm_eval.simple_evaluate(
        model="hf",
        model_args={"pretrained": str(folder)} | MODEL,
        tasks=["own_text"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
        batch_size=4,
        bootstrap_iters=0,
    )
    return found["results"]["own_text"]


def test_perplexities(texts, tmp_path, monkeypatch):
    lines = sentences(60)[-30:]
    found = evaluated(texts.folder, lines, tmp_path, monkeypatch)
    (model,), dictionary = texts.hub.models, texts.hub.task.dictionary
    total = 0.0
    for line in lines:
        tokens = texts.hub.encode(line)[:-1]
        inputs = torch.cat((torch.tensor([dictionary.eos()]), tokens[:-1]))
        with torch.no_grad():
            scores = model(inputs[None])[0][0].double().log_softmax(-1)
        total += scores.gather(1, tokens[:, None]).sum().item()
    words = sum(len(line.split()) for line in lines)
    size = sum(len(line.encode()) for line in lines)
    for name, count in (("word", words), ("byte", size)):
        ours = math.exp(-total / count)
        print(f"{name} perplexity: {found[f'{name}_perplexity,none']}, ours {ours}")
        assert found[f"{name}_perplexity,none"] == pytest.approx(ours, rel=1e-5)
