"""The rows that may hold a key, by its hash."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import product

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
from statestore.formats.segments.ipc_file import encode_file
from statestore.formats.segments.key_index import SCHEMA_OF_GROUPS, KeyIndex, encode_index
from statestore.formats.segments.regions import REGION_BYTES, checksum_regions

TOP = 2**64 - 1
hash_lists = st.lists(st.integers(0, 5) | st.integers(0, TOP) | st.integers(TOP - 5, TOP), max_size=60)


def _rows_by_hash(hashes: list[int]) -> dict[int, list[int]]:
    found = defaultdict(list)
    for row, value in enumerate(hashes):
        found[value].append(row)
    return found


def _stored(hashes: Hashes, grouped: bool = False) -> KeyIndex:
    data, ref = encode_index("segments/a.index.arrow", hashes, grouped=grouped)
    return KeyIndex.open(ref, data)


def _opened(hashes: list[int]) -> list[KeyIndex]:
    """In memory, and both forms of the file; hashes that are repeated enough make the second a grouped one."""
    array = np.array(hashes, np.uint64)
    return [KeyIndex.build(array), _stored(array), _stored(array, grouped=True)]


def _random(count: int, seed: int = 0) -> Hashes:
    return np.random.default_rng(seed).integers(0, TOP, count, dtype=np.uint64, endpoint=True)


@settings(deadline=None)
@given(hash_lists, st.lists(st.integers(0, TOP), max_size=5))
@example([0] * 100, [1])
@example([TOP] * 100, [0])
def test_find_agrees_with_a_dictionary(hashes: list[int], others: list[int]) -> None:
    """Mapped or in memory, present or not, uniform or not: the rows of a hash, ascending."""
    expected = _rows_by_hash(hashes)
    for index in _opened(hashes):
        for probe in {*hashes, *others, 0, TOP}:
            assert index.find(probe) == expected[probe]


@few_or_many(25, 100, hash_lists, hash_lists)
def test_match_agrees_with_loops(hashes: list[int], probes: list[int]) -> None:
    """Every pair of equal hashes once, whether or not the probes are sorted."""
    for index, order in product(_opened(hashes), (probes, sorted(probes))):
        positions, rows = index.match(np.array(order, np.uint64))
        expected = [(p, r) for p, probe in enumerate(order) for r, value in enumerate(hashes) if value == probe]
        assert sorted(zip(positions.tolist(), rows.tolist(), strict=True)) == sorted(expected)


@few_or_many(25, 100, hash_lists, hash_lists)
def test_all_forms_agree(hashes: list[int], probes: list[int]) -> None:
    """Entries, ranges of entries and the arrays for point reads do not depend on how the file stores them."""
    hashes = hashes + probes[:3] * 5
    wanted = np.array([*probes, 0, TOP], np.uint64)
    first, *others = _opened(hashes)
    for other in others:
        assert first.entries == other.entries
        assert first.hashes.tolist() == other.hashes.tolist()
        assert first.rows.tolist() == other.rows.tolist()
        assert [a.tolist() for a in first.ranges(wanted)] == [a.tolist() for a in other.ranges(wanted)]
        assert [list(view) for view in first.memory_views()[:3]] == [list(view) for view in other.memory_views()[:3]]
        other.verify_all()


def test_repeated_hashes_are_stored_once() -> None:
    """Ten rows a key take 5.2 bytes each instead of 12; any Arrow tool reads them; distinct hashes are not grouped."""
    hashes = np.repeat(_random(1_000), 10)
    grouped, ref = encode_index("segments/a.index.arrow", hashes, grouped=True)
    assert grouped.size < 5.2 * len(hashes) + 2_000
    table = ipc.open_file(grouped).read_all()
    assert table.column("rows")[0].as_py() == np.flatnonzero(hashes == hashes.min()).tolist()
    index = KeyIndex.open(ref, grouped)
    assert grouped.address <= index.rows.ctypes.data <= grouped.address + grouped.size - index.rows.nbytes
    distinct = [encode_index("segments/a.index.arrow", _random(100), grouped=grouped)[1] for grouped in (True, False)]
    assert distinct[0] == distinct[1]


@pytest.mark.parametrize(
    ("hashes", "groups", "message"),
    [
        ([2, 1], [[0, 1], [2]], "do not ascend"),
        ([1, 1], [[0, 1], [2]], "do not ascend"),
        ([1, 2], [[0, 1, 2], []], "do not have all of its rows"),
        ([], [], "do not have all of its rows"),
        ([1], [[0, 1, 3]], "row 3 of a segment of 3"),
        ([1], [[0, None, 1]], "1 null rows"),
        ([1, 2], [[0, 1, 2], None], "has nulls"),
    ],
)
def test_forged_groups(hashes: list[int], groups: list[list[int]], message: str) -> None:
    """Intact Arrow that is not a grouped index is refused when it is opened."""
    columns = [pa.array(hashes, pa.uint64()), pa.array(groups, SCHEMA_OF_GROUPS.field("rows").type)]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA_OF_GROUPS)
    data, ref = encode_file("segments/a.index.arrow", SCHEMA_OF_GROUPS, [batch])
    with pytest.raises(CorruptError, match=message):
        KeyIndex.open(ref, data)


def test_a_grouped_index_with_a_row_twice() -> None:
    """Such an index cannot be told from a right one without looking at all rows, as a full check does."""
    columns = [pa.array([1], pa.uint64()), pa.array([[0, 1, 1]], SCHEMA_OF_GROUPS.field("rows").type)]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA_OF_GROUPS)
    data, ref = encode_file("segments/a.index.arrow", SCHEMA_OF_GROUPS, [batch])
    with pytest.raises(CorruptError, match="each row once"):
        KeyIndex.open(ref, data).verify_all()


def test_damaged_groups_never_crash() -> None:
    """Each byte of the bodies changed in turn, with checksums that match: refused, or rows within the segment."""
    hashes = np.repeat(_random(4), 5)
    data, ref = encode_index("segments/a.index.arrow", hashes, grouped=True)
    start, length = ref.metadata_ranges[1]
    refused = 0
    for position in range(start + length, ref.metadata_ranges[2][0]):
        content = bytearray(data.to_pybytes())
        content[position] ^= 0x80
        forged = pa.py_buffer(bytes(content))
        try:
            index = KeyIndex.open(replace(ref, checksums=checksum_regions(forged)), forged)
        except CorruptError:
            refused += 1
        else:
            assert index.rows.max() < 20
            assert len(index.hashes) == 20
    assert refused > 40


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


@pytest.mark.parametrize("grouped", [False, True])
def test_every_flipped_byte_is_refused(grouped: bool) -> None:
    """A small index has one region: no damaged byte gets as far as Arrow."""
    data, ref = encode_index("segments/a.index.arrow", np.repeat(_random(20), 3), grouped=grouped)
    for position in range(data.size):
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
