"""Columns of values read as single values do, in every serde; cells that do not fit are refused by their row."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.kafka.store_rows import encode_session_key, encode_topic_key
from support.parameters import named
from support.properties import few_or_many
from support.stores.kafka_vectors import encodings

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.kafka.columns.origins import Origin
from statestore.formats.kafka.columns.serde_columns import cell_serde
from statestore.formats.kafka.columns.time_columns import MOST_MS
from statestore.formats.kafka_rows.serdes import NAMES, serializer

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "String": st.text(),
    "Short": st.integers(-(2**15), 2**15 - 1),
    "Integer": st.integers(-(2**31), 2**31 - 1),
    "Long": st.integers(-(2**63), 2**63 - 1),
    "Float": st.floats(width=32, allow_nan=False),
    "Double": st.floats(allow_nan=False),
    "Boolean": st.booleans(),
    "UUID": st.uuids(),
    "ByteArray": st.binary(),
    "Bytes": st.binary(),
    "ByteBuffer": st.binary(),
    "Void": st.none(),
}
TIMES = st.integers(-MOST_MS, MOST_MS)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def decoded(name: str, cells: list[bytes | None], skipped: int = 0, window_size: int | None = None) -> pa.Array:
    """The column of these cells, which are a slice of a longer one."""
    serde = cell_serde(name, window_size)
    column = pa.array([b"before"] * skipped + cells, pa.binary()).slice(skipped)
    keys = pa.array([f"row {number}".encode() for number in range(len(cells))], pa.binary())
    found = serde.decode(cells_of(column), Origin("value", keys))
    found.validate(full=True)
    assert found.type == serde.type
    return found


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(one) for one in value]
    return str(value) if isinstance(value, UUID) else value


def test_columns_read_what_kafka_writes() -> None:
    for case in encodings("serde:"):
        name, data = case["kind"].removeprefix("serde:"), bytes.fromhex(case["hex"])
        name = f"List<{case['params']['inner']}>" if name == "list" else name
        value = bytes.fromhex(case["decoded"]) if name == "bytes" else case["decoded"]
        with named(case):
            assert decoded(name, [data, None, data], 1).to_pylist() == [value, None, value]


@few_or_many(60, 1000, name=st.sampled_from(NAMES), data=st.data())
def test_columns_read_as_single_values(name: str, data: st.DataObject) -> None:
    """Slices too, with and without nulls, and lists of the values, which may be null."""
    values = data.draw(st.lists(data.draw(st.sampled_from([VALUES[name], st.none() | VALUES[name]])), max_size=12))
    write = serializer(name)
    assert decoded(name, [write(value) for value in values], data.draw(st.integers(0, 2))).to_pylist() == plain(values)
    lists = data.draw(st.lists(st.none() | st.lists(st.none() | VALUES[name], max_size=4), max_size=12))
    write = serializer(f"List<{name}>")
    found = decoded(f"list<{name}>", [write(value) for value in lists], data.draw(st.integers(0, 2)))
    assert found.to_pylist() == plain(lists)


@few_or_many(
    15,
    100,
    values=st.lists(
        st.none() | st.lists(st.none() | st.lists(st.none() | VALUES["Integer"], max_size=4), max_size=4), max_size=12
    ),
)
def test_lists_of_lists(values: list[Any]) -> None:
    name = "List<List<Integer>>"
    assert decoded(name, [serializer(name)(value) for value in values]).to_pylist() == values


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("String", "ff"),
        ("Short", "000000"),
        ("Integer", ""),
        ("Integer", "0000000000"),
        ("Long", "00000000000000"),
        ("Float", "00"),
        ("Double", "000000000000000000"),
        ("Boolean", ""),
        ("Boolean", "02"),
        ("Boolean", "0001"),
        ("UUID", b"123e4567e89b12d3a456426614174000".hex()),
        ("UUID", b"{123e4567-e89b-12d3-a456-42661417400}".hex()),
        ("UUID", b"123e4567-e89b-12d3-a456-42661417400g".hex()),
        ("UUID", "ff" * 36),
        ("Void", ""),
        ("json", b"{".hex()),
        ("json", b"NaN".hex()),
        ("json", b"1 2".hex()),
        ("json", b"".hex()),
        ("json", "ff"),
        ("json-schema", "0000000007"),
        ("json-schema", "0000000007" + b"{".hex()),
        ("json-schema", "0100000007" + b"{}".hex()),
        ("json-schema", "000007"),
        ("json-schema", b"{}".hex()),
        ("Time-Windowed<String>", "00" * 7),
        ("Session-Windowed<String>", "00" * 15),
        ("Session-Windowed<String>", "00" * 15 + "01"),  # the end before the start
        ("Time-Windowed<Long>", "00" * 15),
        ("Time-Windowed<String>", "7f" + "ff" * 7),  # a time beyond the range
    ],
)
def test_a_cell_that_does_not_fit_is_named(name: str, data: str) -> None:
    """With its row, its bytes and what was expected."""
    named = r"KAFKA_BYTES.*the stored key 726f772031 \(5 bytes\): found .*expected"
    with pytest.raises(CorruptError, match=named) as error:
        decoded(name, [None, bytes.fromhex(data), None])
    assert "name another serde" in error.value.message or "another kind" in error.value.message
    assert data[:14] in error.value.message or "9223372036854775807" in error.value.message


@pytest.mark.parametrize(
    ("inner", "data"),
    [
        ("Integer", ""),
        ("Integer", "02" + "00" * 8),  # strategy
        ("Integer", "01" + "00" * 4),  # the strategy of entries with a length, which Kafka's Integer has not
        ("Integer", "00ffffffff00000000"),  # negative null indexes
        ("Integer", "007fffffff00000000"),  # more null indexes than bytes
        ("Integer", "0000000001000000010000000100000000"),  # null index 1 of one entry
        ("Integer", "0000000001ffffffff0000000100000000"),  # negative null index
        ("Integer", "00000000007fffffff00000001"),  # more entries than bytes
        ("Integer", "0000000000ffffffff"),  # negative entries
        ("Integer", "00000000000000000100000001ff"),  # something behind the end
        ("Integer", "00000000000000000100"),  # cut off
        ("String", "0000000000000000010000000161"),  # fixed size, for which String has none
        ("String", "01ffffffff"),
        ("String", "017fffffff"),
        ("String", "0100000001fffffffe"),  # length -2
        ("String", "01000000010000000261"),
        ("String", "01000000010000000161ff"),
        ("String", "010000000100000001ff"),  # an entry that is no text
    ],
)
@pytest.mark.parametrize("others", [0, 20])
def test_bytes_that_are_no_list_are_refused(inner: str, data: str, others: int) -> None:
    """Alone, and among many lists, which are read in another way."""
    good = serializer(f"List<{inner}>")([1, 2, 3] if inner == "Integer" else ["a", "", "b"])
    assert good is not None
    with pytest.raises(CorruptError, match=r"KAFKA_BYTES.*the stored key 726f77.*expected"):
        decoded(f"List<{inner}>", [*[good] * others, bytes.fromhex(data), *[good] * others])


@few_or_many(40, 300, data=st.binary(max_size=24), inner=st.sampled_from(["String", "Integer", "List<String>"]))
def test_any_bytes_are_a_list_or_refused(data: bytes, inner: str) -> None:
    """Alone as among others, and a list that was read is written as one that reads the same."""
    name = f"List<{inner}>"
    try:
        (found,) = decoded(name, [data]).to_pylist()
    except CorruptError:
        with pytest.raises(CorruptError, match="KAFKA_BYTES"):
            decoded(name, [data] * 12)
    else:
        assert decoded(name, [data] * 12).to_pylist() == [found] * 12
        assert decoded(name, [serializer(name)(found)]).to_pylist() == [found]


@few_or_many(25, 100, values=st.lists(st.none() | JSON.map(json.dumps), max_size=8))
def test_json_is_kept_as_text(values: list[str | None]) -> None:
    assert decoded("JSON", [None if value is None else value.encode() for value in values]).to_pylist() == values


@few_or_many(25, 100, values=st.lists(st.none() | JSON.map(json.dumps), max_size=8), number=st.integers(0, 2**31 - 1))
def test_json_behind_an_id_is_kept_as_text(values: list[str | None], number: int) -> None:
    """Values of several ids, too: JSON says itself which fields it has."""
    cells = [
        None if value is None else b"\0" + (number ^ place).to_bytes(4, "big") + value.encode()
        for place, value in enumerate(values)
    ]
    assert decoded("JSON-Schema", cells).to_pylist() == values


@few_or_many(
    25,
    100,
    rows=st.lists(st.none() | st.tuples(VALUES["Integer"], TIMES), max_size=6),
    size=st.none() | st.integers(1, 9),
)
def test_keys_with_windows(rows: list[tuple[int, int] | None], size: int | None) -> None:
    write = serializer("Integer")
    cells = [None if row is None else encode_topic_key(write(row[0]) or b"", row[1]) for row in rows]
    found = decoded("Time-Windowed<Integer>", cells, 1, size)
    assert found.field("key").to_pylist() == [None if row is None else row[0] for row in rows]
    assert us(found.field("window_start")) == [None if row is None else row[1] * 1000 for row in rows]
    ends = [None if row is None or size is None or row[1] + size > MOST_MS else (row[1] + size) * 1000 for row in rows]
    assert us(found.field("window_end")) == ends
    assert found.is_null().to_pylist() == [row is None for row in rows]


@few_or_many(25, 100, rows=st.lists(st.none() | st.tuples(VALUES["String"], TIMES, TIMES), max_size=6))
def test_keys_with_sessions(rows: list[tuple[str, int, int] | None]) -> None:
    cells = [None if row is None else encode_session_key(row[0].encode(), min(row[1:]), max(row[1:])) for row in rows]
    found = decoded("Session-Windowed<String>", cells, 1)
    assert found.field("key").to_pylist() == [None if row is None else row[0] for row in rows]
    assert us(found.field("session_start")) == [None if row is None else min(row[1:]) * 1000 for row in rows]
    assert us(found.field("session_end")) == [None if row is None else max(row[1:]) * 1000 for row in rows]


def us(column: pa.Array) -> list[int | None]:
    """Timestamps as microseconds."""
    found: list[int | None] = column.cast(pa.int64()).to_pylist()
    return found


@pytest.mark.parametrize("name", ["Avro", "List<Avro>", "List<", "Time-Windowed<>", ""])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match=r"UNSUPPORTED_SERDE.*expected.*json"):
        cell_serde(name)


def test_names_are_found_in_any_case() -> None:
    assert cell_serde(" lIST<time-windowed<lONG>> ").name == "List<Time-Windowed<Long>>"
