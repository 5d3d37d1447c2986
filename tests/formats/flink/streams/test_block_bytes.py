"""Windows on a block's bytes: an entry longer than a piece is read in few steps, and nothing is lost between pieces."""

from __future__ import annotations

import pytest

from statestore.formats.errors import CorruptError
from statestore.formats.flink.streams.block_bytes import BlockWindow


def test_an_entry_of_many_pieces_is_copied_a_few_times() -> None:
    pieces = [bytes([number % 256]) * 16 for number in range(1000)]
    window = BlockWindow(iter(pieces), "file")
    reads = 0
    while window.left < 16_000:
        window.more()
        reads += 1
    assert reads <= 12
    assert window.take(16_000) == b"".join(pieces)
    assert window.is_empty()
    with pytest.raises(CorruptError, match="ends within an entry"):
        window.more()


def test_bytes_between_pieces_are_taken_in_order() -> None:
    window = BlockWindow(iter([b"ab", b"", b"cdefg", b"h"]), "file")
    assert [window.take(3), window.take(1), window.take(4)] == [b"abc", b"d", b"efgh"]
    assert window.is_empty() and window.last
