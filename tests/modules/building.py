"""Small models and layers of each kind, and rows of tokens with pads."""

import pytest
import torch

from fairseq_transnormer.modules import (
    ATTENTIONS,
    LAYERS,
    CausalLanguageModel,
    EncoderT1Config,
    EncoderT2Config,
    LanguageModelT1Config,
    LanguageModelT2Config,
    MaskedLanguageModel,
)

PAD, VOCABULARY, BLOCK = 1, 40, 8
SMALL = {
    "attention_types": "diag*2,norm*2",
    "embed_dim": 16,
    "num_heads": 2,
    "ffn_dim": 24,
    "block_size": BLOCK,
    "flash_key_dim": 6,
    "flash_chunk_size": BLOCK,
    "flash_bias_positions": BLOCK // 2,
    "long_short_window": BLOCK,
    "long_short_chunk_size": BLOCK // 2,
    "long_short_landmarks": 3,
    "linformer_features": 12,
    "linformer_length": 512,
    "reformer_chunk_size": BLOCK // 2,
    "reformer_buckets": 8,
    "nystromformer_landmarks": 5,
    "informer_factor": 2,
    "bigbird_block_size": BLOCK // 2,
    "skyformer_landmarks": 6,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
CAUSAL_CONFIGS = {"t1": LanguageModelT1Config, "t2": LanguageModelT2Config}
ENCODER_CONFIGS = {"t1": EncoderT1Config, "t2": EncoderT2Config}
variants = pytest.mark.parametrize("variant", ["t1", "t2"])


def language_model(variant, **changes):
    """A causal model in float64, where rounding hides nothing."""
    config = CAUSAL_CONFIGS[variant](**(SMALL | changes))
    return CausalLanguageModel(config, VOCABULARY, PAD).double().eval()


def masked_language_model(variant, **changes):
    config = ENCODER_CONFIGS[variant](**(SMALL | changes))
    return _with_large_weights(MaskedLanguageModel(config, VOCABULARY, PAD)).double()


models = pytest.mark.parametrize(
    "build", [language_model, masked_language_model], ids=["causal", "bidirectional"]
)


def features_of(model, tokens):
    """The features alone, of a model of either kind."""
    features = model.features(tokens)
    return features[0] if isinstance(model, CausalLanguageModel) else features


def token_mixer(name, variant, *, causal, **changes):
    """The attention or the whole layer called ``name``."""
    config = CAUSAL_CONFIGS[variant](**(SMALL | changes))
    return (ATTENTIONS | LAYERS)[name](config, causal=causal).double().eval()


def _with_large_weights(model):
    """N(0, 0.02) at width 16, and biases of zero, would hide most of the layers."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
        elif name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def assert_untouched(after, before, types):
    """What stands in front of a change has the same bits; of Reformer's sums the terms
    are the same, but where they lie in a tile depends on later tokens, too."""
    if types == "reformer":
        tolerance = {"rtol": 1e-12, "atol": 1e-12} if after.dtype.itemsize == 8 else {}
        torch.testing.assert_close(after, before, **tolerance)
    else:
        assert torch.equal(after, before)


def draw_tokens(*shape):
    """Tokens that are no pads."""
    return torch.randint(PAD + 1, VOCABULARY, shape)


def left(count, width):
    return [*range(width - count, width)]


def right(count, width):
    return [*range(count)]


def both_sides(count, width):
    start = (width - count + 1) // 2
    return [*range(start, start + count)]


def middle(count, width):
    return [*range(count // 2), *range(width - count + count // 2, width)]


def scattered(count, width):
    return sorted(torch.randperm(width)[:count].tolist())


LAYOUTS = (left, right, both_sides, middle, scattered)


def padded(sentences, layout, width):
    """One batch of all sentences, and the columns in which each stands."""
    # by columns, as pad_sequence and a transpose lay them
    tokens = torch.full((width, len(sentences)), PAD).t()
    columns = [layout(len(sentence), width) for sentence in sentences]
    for row, sentence, where in zip(tokens, sentences, columns, strict=True):
        row[where] = sentence
    return tokens, columns
