"""What rules reach that need no trained model, on the arena and on labelled texts."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..data.label_metrics import of_classes, of_scores
from ..data.labelled_texts import SentenceData
from ..data.whole_files import write_json
from ..outputs import OutputFile

Rules = dict[str, dict[str, float]]  # metrics in percent, by rule and name

# ListOps' symbols: ten digits, then these
MIN, MAX, MED, SM, END = range(10, 15)
OPERATORS: dict[int, Callable[[Sequence[int]], int]] = {
    MIN: min,
    MAX: max,
    # the mean of the middle two of an even count, rounded down
    MED: lambda digits: int(np.median(digits)),
    SM: lambda digits: sum(digits) % 10,
}


def digits_under_the_root(tokens: np.ndarray) -> int:
    """ListOps without what is nested: int (N,) with an operator first.

    Where the root has no digit below it, 0, which no rule could know better.
    """
    depth, digits = 0, []
    for token in tokens.tolist():
        if token == END:
            depth -= 1
        elif token > 9:
            depth += 1
        elif depth == 1:
            digits.append(token)
    return OPERATORS[int(tokens[0])](digits) if digits else 0


def sequence_rules(folder: Path, split: str, settings: Mapping[str, Any]) -> Rules:
    """Those of labelled sequences; see ``trivial_rules``."""
    from ..data.labelled_sequences import LabelledSequences

    train, examples = (LabelledSequences(folder, name) for name in ("train", split))
    first, labels = np.array([(int(x.tokens[0][0]), x.label) for x in train]).T
    largest = np.bincount(labels).argmax()
    best = {token: np.bincount(labels[first == token]).argmax() for token in {*first}}
    rules: dict[str, Callable[[np.ndarray], int]] = {
        "largest class": lambda tokens: largest,
        "first token": lambda tokens: best.get(tokens[0], largest),
    }
    if settings.get("data") == "listops":
        rules["digits under the root"] = digits_under_the_root
    right = dict.fromkeys(rules, 0)
    for tokens, _, label in examples:
        for name, rule in rules.items():
            right[name] += rule(tokens[0].numpy()) == label
    count = len(examples)
    return {name: {"accuracy": 100 * many / count} for name, many in right.items()}


def text_rules(data: SentenceData, split: str, words: bool = True) -> Rules:
    """Those of labelled texts; see ``trivial_rules``.

    words: with the bag of words, which takes seconds of large data.
    """
    from sklearn.dummy import DummyClassifier, DummyRegressor
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.metrics import confusion_matrix

    targets = {name: np.array(data.targets(name)) for name in ("train", split)}
    nothing = {name: np.zeros((len(each), 1)) for name, each in targets.items()}
    rules: dict[str, tuple[Any, Mapping[str, Any]]]
    if data.is_regression:
        rules = {"mean": (DummyRegressor(), nothing)}
    else:
        rules = {"largest class": (DummyClassifier(), nothing)}
    if words:
        bag = Ridge() if data.is_regression else LogisticRegression(max_iter=1000)
        rules["bag of words"] = bag, _words(data, split)
    found = {}
    for rule, (model, features) in rules.items():
        model.fit(features["train"], targets["train"])
        predicted = model.predict(features[split])
        if data.is_regression:
            found[rule] = of_scores(predicted, targets[split])
        else:
            classes = range(data.num_classes)
            counts = confusion_matrix(targets[split], predicted, labels=classes)
            found[rule] = of_classes(counts)
    return found


def _words(data: SentenceData, split: str) -> dict[str, Any]:
    """The TF-IDF weights of train's words, sparse (examples, features), by split."""
    import pandas
    from scipy import sparse
    from sklearn.feature_extraction.text import TfidfVectorizer

    tables = {
        name: pandas.read_csv(
            data.folder / f"{name}.tsv",
            sep="\t",  # as data_prep writes them: nothing is quoted
            quoting=csv.QUOTE_NONE,
            keep_default_na=False,
            dtype=str,
        )
        for name in ("train", split)
    }
    vectorizer = TfidfVectorizer()
    # empty texts in the place of pairs would count as documents
    parts = ("text", "pair") if data.is_pairs else ("text",)
    vectorizer.fit([text for part in parts for text in tables["train"][part]])
    found = {}
    for name, table in tables.items():
        weights = [vectorizer.transform(table[part]) for part in parts]
        if data.is_pairs:
            text, pair = weights
            weights += [abs(text - pair), text.multiply(pair)]
        found[name] = sparse.hstack(weights).tocsr()
    return found


def trivial_rules(
    data: Path, /, split: str | None = None, output: OutputFile = None
) -> None:
    """What rules reach that any model of labelled data should pass.

        python -m fairseq_transnormer analyse trivial_rules data-bin/lra/listops
        python -m fairseq_transnormer analyse trivial_rules data-bin/glue/SST-2

    * largest class: the class that is most frequent in train; of scores, their mean;
    * first token (arena): the class that is most frequent in train after the same first
      token;
    * ListOps, digits under the root: the root's operator over the digits directly below
      it, the other arguments left out;
    * bag of words (texts): a logistic regression on the TF-IDF weights of single words,
      of scores a ridge regression. A pair has the weights of both texts, their absolute
      difference and their product. All settings are scikit-learn's.

    A model that is no better than a rule has shown no more than the rule.

    Args:
        data: folder of labelled sequences or texts.
        split: that is predicted; None: test, and valid of texts.
        output: JSON file for the figures.
    """
    from ..data.labelled_sequences import read_manifest

    if (data / "label").is_dir():
        texts, split = SentenceData.read(data), split or "valid"
        found, record = text_rules(texts, split), {"data": texts.fingerprint()}
    else:
        settings, split = read_manifest(data)["settings"], split or "test"
        found, record = sequence_rules(data, split, settings), {"settings": settings}
    if output is not None:
        write_json(output, {"percent": found, "split": split} | record)
    for name, metrics in found.items():
        shown = "  ".join(f"{metric} {value:6.2f}" for metric, value in metrics.items())
        print(f"{name:22} {shown}")
