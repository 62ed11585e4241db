"""What attentions share that stand in encoders only."""

from abc import abstractmethod

from torch import Tensor

from .attention import Attention


class EncoderAttention(Attention):
    """Bidirectional self-attention without states.

    A subclass computes ``encode``. The tokens of a row stand in front of its pads, as
    ``LayerStack`` sees to, and what the row gives may depend on their number, never on
    the width of the batch.

    Args:
        embed_dim, num_heads, causal: see ``Attention``.

    Raises:
        ValueError: causal; (in forward) a state is given or asked for.
    """

    supports_causal = False

    @abstractmethod
    def encode(
        self, query: Tensor, key: Tensor, value: Tensor, pads: Tensor | None
    ) -> Tensor:
        """(B, N, H, D) each, zero at pads, and bool (B, N) -> (B, N, H, D)."""

    def attend(
        self, query, key, value, positions, key_padding_mask, state, return_state
    ):
        if state is not None or return_state:
            raise ValueError(
                f"{type(self).__name__} with a state; allowed: states in causal models "
                "only"
            )
        inputs = (query, key, value)
        if key_padding_mask is not None:
            pads = key_padding_mask[:, :, None, None]
            inputs = (x.masked_fill(pads, 0) for x in inputs)
        return self.encode(*inputs, key_padding_mask).flatten(2), None
