"""The systems' papers, token by token in float64: one row, loops, no tricks."""

import torch
import torch.nn.functional as F


def rope(x, position):
    """Pairs (0, 1), (2, 3), ... of a vector turned by position * 10000^(-2 i / s)."""
    turned = x.clone()
    for i in range(len(x) // 2):
        angle = torch.tensor(position * 10000.0 ** (-2 * i / len(x)), dtype=x.dtype)
        a, b = x[2 * i], x[2 * i + 1]
        turned[2 * i] = a * angle.cos() - b * angle.sin()
        turned[2 * i + 1] = a * angle.sin() + b * angle.cos()
    return turned


def relative_bias(module, i, j):
    last = len(module.table) // 2
    if abs(i - j) <= last:
        return module.table[i - j + last]
    if module.far == "clip":
        return module.table[0 if i < j else 2 * last]
    return rope(module.a, i) @ rope(module.b, j)


def normed(module, x):
    if isinstance(module, torch.nn.LayerNorm):
        return F.layer_norm(x, x.shape[-1:], module.weight, module.bias, module.eps)
    mean = x.square().mean(-1, keepdim=True)
    return x / (mean + module.eps).sqrt() * module.weight


def gated_attention_unit(layer, x, *, causal, n=None, chunk=None):
    """x (N, d) -> (N, d). n: divisor of the scores. chunk: FLASH's, or None."""
    y = normed(layer.norm, x)
    u, v, z = (
        F.silu(p(y)) for p in (layer.gate_proj, layer.value_proj, layer.base_proj)
    )
    half = len(layer.gain) // 2

    def vector(which, i):
        return rope(z[i] * layer.gain[which] + layer.offset[which], i)

    outputs = []
    for i in range(len(x)):
        attended = torch.zeros_like(v[0])
        for j in range(i + 1 if causal else len(x)):
            same = chunk is None or i // chunk == j // chunk
            if same:
                score = vector(0, i) @ vector(half, j) / (n if chunk is None else chunk)
                score = score + relative_bias(layer.relative_bias, i, j)
                attended = attended + score.clamp(min=0) ** 2 * v[j]
            if chunk is not None and not (causal and same):
                attended = attended + vector(1, i) @ vector(half + 1, j) / chunk * v[j]
        outputs.append(x[i] + layer.out_proj(u[i] * attended))
    return torch.stack(outputs)


def sinusoid(position, width):
    half = width // 2
    angles = [position * 10000.0 ** (-i / (half - 1)) for i in range(half)]
    angles = torch.tensor(angles, dtype=torch.float64)
    return torch.cat((angles.sin(), angles.cos()))


def long_short(layer, x, *, causal):
    """x (N, d) -> (N, d)."""
    heads, width, rank = layer.num_heads, layer.head_dim, layer.rank
    length, window = len(x), layer.window
    q, k, v = (p(x) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    logits = layer.compress_proj(x).view(length, heads, rank)
    near_k, near_v = (normed(layer.softmax.window_norm, each) for each in (k, v))
    if not causal:
        # the encoder compresses what its window sees
        k, v = near_k, near_v

    def compressed(tokens):
        """rank pairs of a key and a value, (d,) each, before the long norm."""
        for r in range(rank):
            key, value = [], []
            for h in range(heads):
                part = slice(h * width, (h + 1) * width)
                p = logits[tokens, h, r].exp()
                p = p / p.sum()
                key.append(p @ k[tokens, part])
                value.append(p @ v[tokens, part])
            yield torch.cat(key), torch.cat(value)

    def r_vector(projection, distance):
        return projection(sinusoid(distance, x.shape[-1]))

    outputs = []
    for i in range(length):
        keys, values, positional = [], [], []
        if causal:
            near = range(max(0, i - window + 1), i + 1)
        else:
            first = i // window * window - window // 2
            near = range(max(0, first), min(length, first + window // 2 * 2 + window))
        for j in near:
            keys.append(near_k[j])
            values.append(near_v[j])
            if causal:
                positional.append(r_vector(layer.softmax.distance_proj, i - j))
        size = layer.chunk_size if causal else length
        own = i // size
        for c in range(own if causal else 1):
            for key, value in compressed(slice(c * size, (c + 1) * size)):
                keys.append(normed(layer.softmax.long_norm, key))
                values.append(normed(layer.softmax.long_norm, value))
                if causal:
                    distance = (own - c) * size
                    positional.append(
                        r_vector(layer.softmax.chunk_distance_proj, distance)
                    )
        output = []
        for h in range(heads):
            part = slice(h * width, (h + 1) * width)
            scores = []
            for n in range(len(keys)):
                query = q[i, part]
                if causal:
                    score = (query + layer.softmax.content_bias[h]) @ keys[n][part]
                    score += (query + layer.softmax.position_bias[h]) @ positional[n][
                        part
                    ]
                else:
                    score = query @ keys[n][part]
                scores.append(score / width**0.5)
            weights = torch.stack(scores).softmax(0)
            output.append(
                sum(w * t[part] for w, t in zip(weights, values, strict=True))
            )
        outputs.append(layer.out_proj(torch.cat(output)))
    return torch.stack(outputs)
