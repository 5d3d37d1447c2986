"""The rows that may hold a key, by its hash."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import ipc
from support.properties import few_or_many

from statestore.formats.errors import CorruptError
from statestore.formats.kernels.arrays import Hashes
from statestore.formats.segments.closures import encode_closures
from statestore.formats.segments.key_index import KeyIndex, encode_index
from statestore.formats.segments.regions import REGION_BYTES, checksum_regions

TOP = 2**64 - 1
hash_lists = st.lists(st.integers(0, 5) | st.integers(0, TOP) | st.integers(TOP - 5, TOP), max_size=60)


def _rows_by_hash(hashes: list[int]) -> dict[int, list[int]]:
    found = defaultdict(list)
    for row, value in enumerate(hashes):
        found[value].append(row)
    return found


def _stored(hashes: Hashes) -> KeyIndex:
    data, ref = encode_index("segments/a.index.arrow", hashes)
    return KeyIndex.open(ref, data)


def _random(count: int, seed: int = 0) -> Hashes:
    return np.random.default_rng(seed).integers(0, TOP, count, dtype=np.uint64, endpoint=True)


@settings(deadline=None)
@given(hash_lists, st.lists(st.integers(0, TOP), max_size=5))
@example([0] * 100, [1])
@example([TOP] * 100, [0])
def test_find_agrees_with_a_dictionary(hashes: list[int], others: list[int]) -> None:
    """Mapped or in memory, present or not, uniform or not: the rows of a hash, ascending."""
    expected = _rows_by_hash(hashes)
    array = np.array(hashes, np.uint64)
    for index in (KeyIndex.build(array), _stored(array)):
        for probe in {*hashes, *others, 0, TOP}:
            assert index.find(probe) == expected[probe]


@few_or_many(25, 100, hash_lists, hash_lists)
def test_match_agrees_with_loops(hashes: list[int], probes: list[int]) -> None:
    """Every pair of equal hashes once, whether or not the probes are sorted."""
    index = KeyIndex.build(np.array(hashes, np.uint64))
    for order in (probes, sorted(probes)):
        positions, rows = index.match(np.array(order, np.uint64))
        expected = [(p, r) for p, probe in enumerate(order) for r, value in enumerate(hashes) if value == probe]
        assert sorted(zip(positions.tolist(), rows.tolist(), strict=True)) == sorted(expected)


def test_many_hashes() -> None:
    """Interpolation finds each of many uniform hashes and their repetitions."""
    hashes = _random(50_000)[np.random.default_rng(1).integers(0, 20_000, 50_000)]
    index, expected = KeyIndex.build(hashes), _rows_by_hash(hashes.tolist())
    assert all(index.find(value) == rows for value, rows in expected.items())
    assert not any(index.find(value) for value in _random(1_000, seed=2).tolist())


def test_file_is_plain_arrow() -> None:
    """Any Arrow tool reads the two columns: hashes ascending, rows ascending where hashes are equal."""
    hashes = np.array([7, 3, 7, TOP, 3], np.uint64)
    data, ref = encode_index("segments/a.index.arrow", hashes)
    table = ipc.open_file(data).read_all()
    assert table.to_pydict() == {"key_hash": [3, 3, 7, 7, TOP], "row": [1, 4, 0, 2, 3]}
    assert [str(kind) for kind in table.schema.types] == ["uint64", "uint32"]
    assert ref.bytes == data.size
    index = KeyIndex.open(ref, data)
    assert (index.hashes.tolist(), index.rows.tolist()) == ([3, 3, 7, 7, TOP], [1, 4, 0, 2, 3])


def test_columns_are_not_copied() -> None:
    """The numpy views lie inside the file's buffer."""
    data, ref = encode_index("segments/a.index.arrow", _random(1000))
    index = KeyIndex.open(ref, data)
    for array in (index.hashes, index.rows):
        assert data.address <= array.ctypes.data <= data.address + data.size - array.nbytes


def test_find_checks_what_it_reads() -> None:
    """A look-up far from the damage answers; one that needs damaged entries, or everything, is refused."""
    hashes = np.sort(_random(500_000))
    data, ref = encode_index("segments/a.index.arrow", hashes)
    content = bytearray(data.to_pybytes())
    content[2 * REGION_BYTES + 9] ^= 1  # among hashes around the middle
    index = KeyIndex.open(ref, pa.py_buffer(bytes(content)))
    assert index.find(int(hashes[10])) == [10]
    with pytest.raises(CorruptError, match="region 2 "):
        index.find(int(hashes[(2 * REGION_BYTES) // 8]))
    with pytest.raises(CorruptError, match="region 2 "):
        index.match(hashes[:1])
    with pytest.raises(CorruptError, match="region 2 "):
        index.verify_all()


@pytest.mark.parametrize("step", [1, 13])
def test_every_flipped_byte_is_refused(step: int) -> None:
    """A small index has one region: no damaged byte gets as far as Arrow."""
    data, ref = encode_index("segments/a.index.arrow", _random(20))
    for position in range(0, data.size, step):
        content = bytearray(data.to_pybytes())
        content[position] ^= 1 << (position % 8)
        with pytest.raises(CorruptError):
            KeyIndex.open(ref, pa.py_buffer(bytes(content)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", b"\3", "do not ascend"),
        (b"\0\0\0\0\1\0\0\0\2\0\0\0", b"\1", "each row once"),
    ],
)
def test_verify_all_knows_the_rules(old: bytes, new: bytes, message: str) -> None:
    """Intact bytes that are not a key index: hashes out of order, a row twice."""
    data, ref = encode_index("segments/a.index.arrow", np.array([1, 2, 3], np.uint64))
    KeyIndex.open(ref, data).verify_all()
    forged = pa.py_buffer(data.to_pybytes().replace(old, new + old[1:]))
    index = KeyIndex.open(replace(ref, checksums=checksum_regions(forged)), forged)
    with pytest.raises(CorruptError, match=message):
        index.verify_all()


def test_other_files_are_not_an_index() -> None:
    """An Arrow file with other columns is refused by its schema."""
    data, slices = encode_closures("c.arrow", [("s", 1, np.array([1]), np.array([5]))])
    with pytest.raises(CorruptError, match="not a key index"):
        KeyIndex.open(slices[0].file, data)
