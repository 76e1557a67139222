"""The checksum of SQLite's write-ahead log and of its index.

For each pair of words x, y: a += x + b; b += y + a. That is linear, so that what a whole frame adds is one product with
weights that depend on its length alone, and a frame goes on from any seed without being read again.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]
Sum = tuple[int, int]


def checksum(data: bytes, big: bool) -> Sum:
    """Of bytes, from a seed of zero."""
    words = np.frombuffer(data, ">u4" if big else "<u4").astype(np.uint32)
    own = added(words[None, :])[0]
    return int(own[0]), int(own[1])


def continued(seed: Sum, own: Sum, page_size: int) -> Sum:
    """The checksum of a frame whose bytes add `own`, after a frame or header whose checksum is `seed`."""
    (p, q), (r, s) = _power((8 + page_size) // 8)
    a, b = seed
    return (p * a + q * b + own[0]) & 0xFFFFFFFF, (r * a + s * b + own[1]) & 0xFFFFFFFF


def added(words: Words) -> Words:
    """What each row of words adds to a checksum of zero."""
    first, second = words[:, 0::2], words[:, 1::2]
    weights = _weights(first.shape[1])
    sums = [(first * weights[0, row] + second * weights[1, row]).sum(axis=1, dtype=np.uint32) for row in (0, 1)]
    return np.stack(sums, axis=1)


@cache
def _power(pairs: int) -> tuple[tuple[int, int], tuple[int, int]]:
    p, q, r, s = 1, 0, 0, 1
    for _ in range(pairs):
        p, q, r, s = p + q, p + 2 * q, r + s, r + 2 * s
    mask = 0xFFFFFFFF
    return (p & mask, q & mask), (r & mask, s & mask)


@cache
def _weights(pairs: int) -> Words:
    """[word of the pair, part of the checksum, pair] → weight."""
    weights = np.zeros((2, 2, pairs), np.uint64)
    a, b, c, d = 1, 0, 1, 1  # what x and y of the last pair add: (x, x + y)
    for pair in range(pairs - 1, -1, -1):
        weights[:, :, pair] = [[a, c], [b, d]]
        a, b, c, d = (v & 0xFFFFFFFF for v in (a + c, b + d, a + 2 * c, b + 2 * d))
    return weights.astype(np.uint32)
