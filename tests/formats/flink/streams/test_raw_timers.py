"""Where the blocks of key groups lie in a stream, from offsets that may lie."""

from __future__ import annotations

import pytest

from statestore.formats.errors import CorruptError
from statestore.formats.flink.snapshot.handles import InPlace, KeyGroupHandle
from statestore.formats.flink.streams.raw_timers import block_bounds


def _handle(*offsets: int) -> KeyGroupHandle:
    return KeyGroupHandle("heap", 4, offsets, InPlace("bytes", bytes(100)))


def test_bytes_belong_to_one_key_group() -> None:
    assert block_bounds(_handle(0, -1, 40, 40, 40, 90), 100, "file") == {
        4: (0, 40),
        6: (40, 40),
        7: (40, 40),
        8: (40, 90),
        9: (90, 100),
    }


def test_offsets_beyond_the_file_are_refused() -> None:
    with pytest.raises(CorruptError, match="found key groups from byte 101 on, expected at most 100"):
        block_bounds(_handle(0, 101), 100, "file")
