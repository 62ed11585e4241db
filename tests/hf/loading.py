"""What transformers loads of a folder, rows of tokens, and batches of them."""

import torch

from tests.zoo import CAUSAL, ENCODERS, HEADS, WORDS


def loader(name: str):
    """from_pretrained of a class of transformers, which is imported by its call."""

    def load(folder, **options):
        import transformers

        return getattr(transformers, name).from_pretrained(folder, **options)

    return load


causal, masked, classifier, features_of, tokenizer_of, config_of = map(
    loader,
    ("AutoModelForCausalLM", "AutoModelForMaskedLM")
    + ("AutoModelForSequenceClassification", "AutoModel", "AutoTokenizer")
    + ("AutoConfig",),
)
LOAD = dict.fromkeys(CAUSAL, causal) | dict.fromkeys(ENCODERS, masked)
WITH_HEADS = LOAD | dict.fromkeys(HEADS, classifier)


def rows(*lengths: int) -> list[torch.Tensor]:
    """Rows of drawn words."""
    return [torch.randint(4, WORDS, (length,)) for length in lengths]


def padded(given: list[torch.Tensor], side: str) -> tuple[torch.Tensor, torch.Tensor]:
    """input_ids and attention_mask (B, N) of rows, pads on the left or on the right."""
    most = max(map(len, given))
    tokens, mask = torch.ones(2, len(given), most, dtype=torch.int64).unbind()
    mask = torch.zeros_like(mask)
    for i, row in enumerate(given):
        start = most - len(row) if side == "left" else 0
        tokens[i, start : start + len(row)] = row
        mask[i, start : start + len(row)] = 1
    return tokens, mask
