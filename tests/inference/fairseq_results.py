"""What fairseq generates, one prompt at a time: its lengths depend on the batch."""

from fairseq.hub_utils import GeneratorHubInterface

import fairseq_transnormer.plugin  # noqa: F401 (registers the models)


def fairseq_generates(
    hub: GeneratorHubInterface, prompt: str, max_new_tokens: int, **options
) -> tuple[list[int], float, list[float]]:
    """Tokens, score and the tokens' log-probabilities of the best hypothesis."""
    # fairseq's source has a token in front of the prompt, hence -1
    best = hub.generate(
        [hub.encode(prompt)],
        max_len_a=1,
        max_len_b=max_new_tokens - 1,
        **{"beam": 1} | options,
    )[0][0]
    return (
        best["tokens"].tolist(),
        best["score"].item(),
        best["positional_scores"].tolist(),
    )
