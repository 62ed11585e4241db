"""Linformer, Kernelized Attention, Skyformer, Nystromformer: their papers, naively."""

import pytest
import torch
import torch.nn.functional as F

from fairseq_transnormer.modules.baselines.nystromformer import iterative_inverse

from .attentions import HEAD, HEADS, build, check, draw, softmax, vanilla


@pytest.mark.parametrize("length", [1, 9, 20])
@torch.no_grad()
def test_linformer(length):
    layer = build("linformer", linformer_features=5, linformer_length=20)
    e = torch.nn.init.normal_(layer.length_proj)[:, :, :length]
    check(layer, lambda q, k, v: softmax(q, e @ k) @ (e @ v), length)


@torch.no_grad()
def test_linformer_with_identities_is_softmax_attention():
    layer = build("linformer", linformer_features=12, linformer_length=12)
    layer.length_proj.copy_(torch.eye(12).expand(HEADS, 12, 12))
    check(layer, vanilla, 12)


def gaussian(a, b):
    """One pair after another."""
    return torch.stack(
        [
            torch.stack([torch.exp(-(x - b_h).square().sum(-1) / 2) for x in a_h])
            for a_h, b_h in zip(a / HEAD**0.25, b / HEAD**0.25, strict=True)
        ]
    )


@pytest.mark.parametrize("length", [1, 9])
@torch.no_grad()
def test_kernelized(length):
    check(build("kernelized"), lambda q, k, v: gaussian(q, k) @ v, length)


def skyformer_tokens(drawn, length):
    """Tokens that are landmarks: one of each segment that is not empty."""
    count, found = len(drawn), []
    for s, number in enumerate(drawn.tolist()):
        start, end = s * length // count, (s + 1) * length // count
        if end > start:
            found.append(start + number % (end - start))
    return found


@pytest.mark.parametrize("length", [1, 3, 7, 30])
@torch.no_grad()
def test_skyformer(length):
    """[K(Q, L)] (K(L, L) + gamma I)^-1 [K(L, K)] V, with the inverse itself."""
    layer = build("skyformer", skyformer_landmarks=9, skyformer_iterations=60)

    def equation(q, k, v):
        of_q, of_k = (skyformer_tokens(x, length) for x in layer.drawn.split((4, 5)))
        assert len({*of_q}) == min(4, length) and len({*of_k}) == min(5, length)
        landmarks = torch.cat((q[:, of_q], k[:, of_k]), 1)
        identity = torch.eye(landmarks.shape[1], dtype=torch.float64)
        middle = gaussian(landmarks, landmarks) + 0.1 * identity
        inverse = torch.linalg.inv(middle)
        return gaussian(q, landmarks) @ inverse @ gaussian(landmarks, k) @ v

    check(layer, equation, length)


@torch.no_grad()
def test_skyformer_with_all_tokens_is_kernelized_attention():
    layer = build(
        "skyformer",
        skyformer_landmarks=24,
        skyformer_iterations=60,
        skyformer_regularization=1e-9,
    )
    check(layer, lambda q, k, v: gaussian(q, k) @ v, 12, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_skyformer_converges_to_kernelized_attention():
    x, errors = 0.5 * draw(128), []
    exact = build("kernelized")
    for count in (8, 32, 128):
        layer = build(
            "skyformer",
            skyformer_landmarks=count,
            skyformer_iterations=40,
            skyformer_regularization=1e-6,
        )
        layer.load_state_dict(exact.state_dict(), strict=False)
        errors.append((layer(x)[0] - exact(x)[0]).norm() / exact(x)[0].norm())
    assert errors[0] > 1.5 * errors[1] > 1.5**2 * errors[2] and errors[2] < 0.1


def means(x, count):
    """Means of (H, N, D) over segments that are as long as possible."""
    length = x.shape[1]
    bounds = [s * length // count for s in range(count + 1)]
    return torch.stack(
        [x[:, a:b].mean(1) for a, b in zip(bounds[:-1], bounds[1:], strict=True)], 1
    )


@pytest.mark.parametrize("length", [6, 12, 17])
@torch.no_grad()
def test_nystromformer(length):
    layer = build("nystromformer", nystromformer_landmarks=5)

    def equation(q, k, v):
        landmarks_q, landmarks_k = means(q, 5), means(k, 5)
        middle = softmax(landmarks_q, landmarks_k)
        inverse = torch.linalg.pinv(middle)
        return softmax(q, landmarks_k) @ inverse @ softmax(landmarks_q, k) @ v

    layer.iterations = 40
    check(layer, equation, length, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("length", [1, 5, 12])
@torch.no_grad()
def test_nystromformer_with_as_many_landmarks_is_softmax_attention(length):
    check(build("nystromformer", nystromformer_landmarks=12), vanilla, length)


@torch.no_grad()
def test_nystromformers_convolution():
    layer = build(
        "nystromformer", nystromformer_landmarks=12, nystromformer_kernel_size=3
    )
    kernel = layer.convolution.weight.view(HEADS, 3)

    def equation(q, k, v):
        padded = F.pad(v, (0, 0, 1, 1))
        length = v.shape[1]
        local = sum(
            kernel[:, j, None, None] * padded[:, j : j + length] for j in range(3)
        )
        return vanilla(q, k, v) + local

    check(layer, equation, 12)


@pytest.mark.parametrize("iterations", [0, 1, 2])
def test_the_inverse_before_it_has_converged(iterations):
    """Its start and its order show then only: Z_0 = A^T / |A|_1, of each matrix."""
    matrices = (3 * torch.randn(4, 7, 7, dtype=torch.float64)).softmax(-1)
    found = iterative_inverse(matrices, iterations)
    for a, z in zip(matrices, found, strict=True):
        expected, eye = a.T / max(column.sum() for column in a.T), torch.eye(7)
        for _ in range(iterations):
            az = a @ expected
            expected = expected @ (13 * eye - az @ (15 * eye - az @ (7 * eye - az))) / 4
        torch.testing.assert_close(z, expected)
