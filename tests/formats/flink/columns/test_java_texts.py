"""Big numbers as Java writes them, against Python's decimals, which have the same rule."""

from __future__ import annotations

import random
from decimal import Decimal

import numpy as np

from statestore.formats.flink.columns.java_texts import scaled_texts, whole_texts

EDGES = [0, 1, -1, 9, 10, -10, 127, -128, 10**6, 10**7, 2**62, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**40]


def test_numbers_of_any_size_and_scale_are_the_texts_of_java() -> None:
    chance = random.Random(5)
    numbers = EDGES + [chance.randrange(-(1 << bits), 1 << bits) for bits in range(1, 90) for _ in range(6)]
    values = [(number, scale) for number in numbers for scale in (0, 1, 2, 6, 7, 18, 19, 30, -1, -3)]
    octets = [number.to_bytes((number.bit_length() if number >= 0 else (~number).bit_length()) // 8 + 1, "big",
                              signed=True) for number, _ in values]  # fmt: skip
    size = np.array([len(each) for each in octets])
    data, start = np.frombuffer(b"".join(octets), np.uint8), np.cumsum(size) - size
    scale = np.array([each for _, each in values])
    expected = [
        str(Decimal((number < 0, tuple(map(int, str(abs(number)))), -each))) if number or each else "0"
        for number, each in values
    ]
    assert scaled_texts(data, start, size, scale).to_pylist() == expected
    assert whole_texts(data, start, size).to_pylist() == [str(number) for number, _ in values]
    assert scaled_texts(data, start[:0], size[:0], scale[:0]).to_pylist() == []
