"""Lines of JSON are those that `json.dumps` makes of each row by itself, and numbers of rows those of a plain count."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from statestore.catalog.edits.receipt_states import counts
from statestore.catalog.edits.row_texts import json_lines
from statestore.catalog.edits.shown_rows import json_rows
from statestore.formats.edits import StateEdit

INNER = pa.struct([("z", pa.string()), ("a", pa.int16()), ("s", pa.struct([("b'\"", pa.bool_())]))])
SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("large", pa.large_string()),
        ("number", pa.int64()),
        ("unsigned", pa.uint64()),
        ("is", pa.bool_()),
        ("real", pa.float64()),
        ("inner", INNER),
        ("list", pa.list_(INNER)),
        ("map", pa.map_(pa.string(), pa.int32())),
        ("bytes", pa.binary()),
        ("money", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("é\n", pa.date32()),
    ]
)
TEXTS = st.none() | st.text(max_size=6) | st.sampled_from(["plain", '"', "\\", "\x00", "\x7f", "é", "\ud7ff", "𝄞", ""])
INNERS = st.none() | st.fixed_dictionaries(
    {
        "z": TEXTS,
        "a": st.none() | st.integers(-9, 9),
        "s": st.none() | st.fixed_dictionaries({"b'\"": st.none() | st.booleans()}),
    }
)
ROWS = st.fixed_dictionaries(
    {
        "text": TEXTS,
        "large": TEXTS,
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "unsigned": st.none() | st.integers(0, 2**64 - 1),
        "is": st.none() | st.booleans(),
        "real": st.none() | st.floats(),
        "inner": INNERS,
        "list": st.none() | st.lists(INNERS, max_size=2),
        "map": st.none()
        | st.dictionaries(st.text(max_size=2), st.none() | st.integers(0, 3), max_size=2).map(
            lambda found: list(found.items())
        ),
        "bytes": st.none() | st.binary(max_size=3),
        "money": st.none() | st.integers(-999, 999).map(lambda n: Decimal(n) / 4 * 4 / 100),
        "at": st.none() | st.datetimes(timezones=st.just(datetime.UTC)),
        "é\n": st.none() | st.dates(),
    }
)


@given(st.lists(ROWS, max_size=4), st.integers(0, 3))
def test_lines_are_those_of_each_row(rows: list[dict[str, Any]], start: int) -> None:
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA).slice(min(start, len(rows)))
    expected = [json.dumps(row, sort_keys=True) for row in json_rows(batch)]
    assert json_lines(batch).to_pylist() == expected


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=8),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=8),
    st.booleans(),
)
def test_numbers_of_rows_are_those_of_a_plain_count(
    removed: list[tuple[int, int]], added: list[tuple[int, int]], is_keyed: bool
) -> None:
    if is_keyed:
        removed, added = list(dict(removed).items()), list(dict(added).items())
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    sides = [pa.Table.from_pylist([{"k": k, "v": v} for k, v in rows], schema) for rows in (removed, added)]
    gone, come = Counter(removed) - Counter(added), Counter(added) - Counter(removed)
    changed = len({k for k, _ in gone} & {k for k, _ in come}) if is_keyed else 0
    expected = (gone.total() - changed, come.total() - changed, changed)
    assert counts(StateEdit("s", ("k",), *sides), ("k",) if is_keyed else ()) == expected
