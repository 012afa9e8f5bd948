"""The n-grams of texts as sets, for tests of what compares them."""

import numpy as np

from data.text.words import ngram_hashes


def hash_texts(texts: list[bytes], n: int) -> list[np.ndarray]:
    """The distinct n-gram hashes of each text, sorted: uint64."""
    found = []
    for text in texts:
        out = np.empty(len(text) // 2 + 1, np.uint64)
        _, num_grams = ngram_hashes(np.frombuffer(text, np.uint8), 0, len(text), n, out)
        found.append(np.unique(out[:num_grams]))
    return found
