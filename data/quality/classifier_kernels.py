"""Kernels of the quality classifier: the features of a text, its score, and one pass of training.

Features are tokens (data/text/model_tokens.py) and pairs of neighbouring tokens, hashed into 2**bits buckets; the
weight of a text is the mean of its features' weights, so it does not grow with the text's length.
"""

import numba
import numpy as np

from data.text.model_tokens import next_token

_PAIR = np.uint64(0xD6E8FEB86659FD93)
_MIX = np.uint64(0x9E3779B97F4A7C15)


@numba.njit(nogil=True, cache=True)
def features(values: np.ndarray, begin: int, end: int, bits: int, out: np.ndarray) -> int:
    """Writes the bucket of each token and each pair of tokens of values[begin:end] to out: int32, of at least
    2 * (end - begin) elements; returns their number."""
    shift = np.uint64(64 - bits)
    n = 0
    before = np.uint64(0)
    i = begin
    while True:
        h, _, i = next_token(values, i, end)
        if h == 0:
            return n
        out[n] = (h * _MIX) >> shift
        n += 1
        if before != 0:
            pair = (before * _PAIR) ^ h
            out[n] = ((pair ^ (pair >> np.uint64(31))) * _MIX) >> shift
            n += 1
        before = h


@numba.njit(nogil=True, cache=True)
def _room(offsets: np.ndarray) -> int:
    """Most features that a text can have."""
    longest = 0
    for d in range(len(offsets) - 1):
        longest = max(longest, offsets[d + 1] - offsets[d])
    return 2 * longest


@numba.njit(nogil=True, cache=True)
def score(
    values: np.ndarray, offsets: np.ndarray, weights: np.ndarray, bits: int, bias: float, out: np.ndarray
) -> None:
    """out: float32[n], the probability that a text is good; that of the bias alone for a text without a token. weights:
    float32[2**bits]."""
    found = np.empty(_room(offsets), np.int32)
    for d in range(len(offsets) - 1):
        n = features(values, offsets[d], offsets[d + 1], bits, found)
        # Apart from the reading of tokens, so that the memory is asked for many weights at a time.
        total = 0.0
        for k in range(n):
            total += weights[found[k]]
        out[d] = 1 / (1 + np.exp(-(bias + total / max(n, 1))))


@numba.njit(nogil=True, cache=True)
def train(
    values: np.ndarray,
    offsets: np.ndarray,
    is_good: np.ndarray,
    order: np.ndarray,
    rate: float,
    class_weights: np.ndarray,
    bits: int,
    weights: np.ndarray,
    squares: np.ndarray,
    bias: np.ndarray,
) -> float:
    """One pass over the texts in this order: logistic regression by AdaGrad (Duchi et al. 2011), one text at a time;
    returns the mean loss in bits.

    is_good: bool[n], order: int64[n], class_weights: float64[2] of bad and good. weights and squares (sums of squared
    gradients): float32[2**bits], and bias: float64[2], the bias and its sum, go on from pass to pass.
    """
    found = np.empty(_room(offsets), np.int32)
    loss = 0.0
    for d in order:
        n = features(values, offsets[d], offsets[d + 1], bits, found)
        if n == 0:
            continue
        buckets = np.sort(found[:n])
        total = 0.0
        for k in range(n):
            total += weights[buckets[k]]
        probability = 1 / (1 + np.exp(-(bias[0] + total / n)))
        weight = class_weights[1] if is_good[d] else class_weights[0]
        loss -= weight * np.log2(max(probability if is_good[d] else 1 - probability, 1e-12))
        gradient = weight * (probability - is_good[d])
        bias[1] += gradient * gradient
        bias[0] -= rate * gradient / np.sqrt(bias[1] + 1e-12)
        k = 0
        while k < n:
            first = k
            bucket = buckets[k]
            while k < n and buckets[k] == bucket:
                k += 1
            slope = gradient * (k - first) / n
            squares[bucket] += slope * slope
            weights[bucket] -= rate * slope / np.sqrt(squares[bucket] + 1e-12)
    return loss / len(order)
