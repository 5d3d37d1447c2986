"""XXH64 of columns gives the answers of the C implementation, by numpy and by the compiled loop."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from xxhash import xxh64_intdigest

from statestore.formats.kernels import compiled_use
from statestore.formats.values import xxh64
from statestore.formats.values.xxh64 import LONG, xxh64_strings, xxh64_words

RANDOM = np.random.default_rng(7)


def _hashes(rows: list[bytes]) -> list[int]:
    offsets = np.cumsum([0, *map(len, rows)])
    hashes: list[int] = xxh64_strings(np.frombuffer(b"".join(rows), np.uint8), offsets).tolist()
    return hashes


@pytest.fixture(autouse=True, params=["plain", "compiled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By numpy and Arrow, and by the compiled loop."""
    loaded = request.param == "compiled"
    if loaded:
        importlib.import_module(compiled_use.COMPILED)
    monkeypatch.setattr(xxh64, "is_loaded", lambda: loaded)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999)],
)
def test_published_answers(text: bytes, expected: int) -> None:
    """The vectors that other implementations publish."""
    assert _hashes([text]) == [expected]


def test_every_length_alone_and_among_others() -> None:
    """Each length up to well beyond the C function's share, as a block of its own and sorted into a mixed block."""
    rows = [RANDOM.bytes(length) for length in range(LONG + 50)]
    expected = [xxh64_intdigest(row) for row in rows]
    assert _hashes(rows) == expected
    assert [_hashes([row])[0] for row in rows] == expected


def test_many_blocks_of_mixed_lengths() -> None:
    """Rows keep their order through the sort by length inside each block."""
    rows = [RANDOM.bytes(length) for length in RANDOM.integers(0, 80, 9_000)]
    assert _hashes(rows) == [xxh64_intdigest(row) for row in rows]


def test_rows_far_longer_than_16_bits_count() -> None:
    """Lengths are capped, not truncated, for the sort."""
    rows = [b"x" * 70_000, b"", b"y" * 65_536, b"z" * 3]
    assert _hashes(rows) == [xxh64_intdigest(row) for row in rows]


def test_offsets_need_not_start_at_zero() -> None:
    """Sliced Arrow arrays share their buffers."""
    data = np.frombuffer(b"skipped|one|three", np.uint8)
    assert xxh64_strings(data, np.array([8, 11, 12, 17], np.int32)).tolist() == [
        xxh64_intdigest(part) for part in (b"one", b"|", b"three")
    ]


def test_no_rows() -> None:
    assert len(xxh64_strings(np.empty(0, np.uint8), np.zeros(1, np.int64))) == 0
    assert len(xxh64_words([np.empty(0, np.uint64)])) == 0


@pytest.mark.parametrize("width", [1, 2, 3])
def test_words_are_their_little_endian_bytes(width: int) -> None:
    """More rows than one block holds; the input stays as it was."""
    columns = [RANDOM.integers(0, 2**64, 9_000, np.uint64) for _ in range(width)]
    before = [column.copy() for column in columns]
    rows = np.stack(columns, axis=1).astype("<u8")
    assert xxh64_words(columns).tolist() == [xxh64_intdigest(row.tobytes()) for row in rows]
    assert all(np.array_equal(*pair) for pair in zip(before, columns, strict=True))


def test_four_words_are_refused() -> None:
    with pytest.raises(ValueError, match="one to three"):
        xxh64_words([np.zeros(1, np.uint64)] * 4)
