"""The paper's equations in float64, written down a second time for the tests.

Row by row and over the real tokens only, so that nothing here can share a fault with
the ops: no masks, no chunks, no states. Shapes as in the ops.
"""

import torch


def linear_attention(
    query, key, value, *, causal, key_padding_mask=None, normalize=False, eps=1e-6
):
    """Equation 3: sum_j (q_i . k_j) v_j, over max(sum_j q_i . k_j, eps) if asked."""
    query, key, value = query.double(), key.double(), value.double()
    rows = []
    for b in range(query.shape[0]):
        seen = _real(key, key_padding_mask, b)
        scores = torch.einsum("nhd,mhd->hnm", query[b], key[b, seen])
        if causal:
            later = seen[None, :] > torch.arange(query.shape[1])[:, None]
            scores = scores * (~later)
        row = torch.einsum("hnm,mhe->nhe", scores, value[b, seen])
        if normalize:
            total = scores.sum(-1).transpose(0, 1)
            total = torch.where(total > eps, total, torch.full_like(total, eps))
            row = row / total[..., None]
        rows.append(row)
    return torch.stack(rows)


def block_attention(
    query,
    key,
    value,
    *,
    block_size,
    causal,
    activation="softmax",
    scale=None,
    key_padding_mask=None,
    factors=None,
):
    """Section 4.2: position by position, over the real tokens of its block.

    factors: (B, N, H, block_size), of the weights, as dropout has them.
    """
    query, key, value = query.double(), key.double(), value.double()
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    rows = []
    for b in range(query.shape[0]):
        real = _real(key, key_padding_mask, b)
        row = []
        for i in range(query.shape[1]):
            start = i - i % block_size
            end = i + 1 if causal else start + block_size
            seen = real[(real >= start) & (real < end)]
            scores = scale * torch.einsum("hd,mhd->hm", query[b, i], key[b, seen])
            if activation == "relu":
                weights = scores * (scores > 0)
            elif len(seen):
                weights = (scores - scores.max(-1, keepdim=True).values).exp()
                weights = weights / weights.sum(-1, keepdim=True)
            else:
                weights = scores
            if factors is not None:
                weights = weights * factors[b, i][:, seen - start]
            row.append(torch.einsum("hm,mhe->he", weights, value[b, seen]))
        rows.append(torch.stack(row))
    return torch.stack(rows)


def rms_norm(x, *, eps):
    x = x.double()
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) / x.shape[-1] + eps)


def lrpe_matrix(position, theta, reflection):
    """The (D, D) matrix by which LRPE multiplies a vector at one position."""
    width = len(reflection)
    v = reflection.double()
    matrix = torch.eye(width, dtype=torch.float64) - 2 * v[:, None] * v[None, :]
    angles = position * theta.double()
    rows = []
    for pair in range(width // 2):
        even, odd = matrix[2 * pair], matrix[2 * pair + 1]
        cos, sin = torch.cos(angles[pair]), torch.sin(angles[pair])
        rows += [cos * even - sin * odd, sin * even + cos * odd]
    return torch.stack(rows)


def lrpe(x, theta, reflection, positions, feature_map="identity"):
    """phi(x) (B, N, H, D) times each position's matrix; differentiable in theta.

    positions: (N,), or (B, N) for positions of each row.
    """
    v = reflection.double()
    reflect = torch.eye(len(v), dtype=v.dtype, device=v.device) - 2 * v[:, None] * v
    angles = (positions[..., None] * theta.double()).expand(*x.shape[:2], -1)
    cos, sin = angles.cos()[:, :, None], angles.sin()[:, :, None]
    x = FEATURE_MAPS[feature_map](x.double()) @ reflect
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = torch.stack((cos * even - sin * odd, sin * even + cos * odd), -1)
    return turned.flatten(-2)


def gate(a, b):
    """silu(a) * b."""
    return a / (1 + torch.exp(-a)) * b


def _real(key, key_padding_mask, row):
    if key_padding_mask is None:
        return torch.arange(key.shape[1])
    return (~key_padding_mask[row]).nonzero()[:, 0]


FEATURE_MAPS = {
    "elu": lambda x: torch.where(x > 0, x, x.exp() - 1),
    "1+elu": lambda x: torch.where(x > 0, x + 1, x.exp()),
    "relu": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    "identity": lambda x: x,
}
