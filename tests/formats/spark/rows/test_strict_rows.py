"""The check of rows against given types: rows of a model pass, and whatever else passes is such a row."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.checkpoints.unsafe_row_model import row_bytes

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.errors import CorruptError
from statestore.formats.spark.checkpoint.given_types import given_of
from statestore.formats.spark.checkpoint.spark_schema import StructOf
from statestore.formats.spark.rows.strict_rows import check_strictly, decode_checked_values
from statestore.formats.spark.rows.unsafe_row import decode_rows

COLUMNS = (
    "a int, b string, c struct<d: smallint, e: string>, f array<int>, g array<string>, h map<string, int>, "
    "i decimal(30, 2), j boolean, k double, l binary, m array<struct<n: string>>"
)
ROWS: list[tuple[Any, ...]] = [
    (1, "x", (2, "yy"), [1, 2, None], ["a", None, "bcd"], [("k", 1), ("l", None)], Decimal("1.25"), 1, 0.5, b"\0", []),
    (None, None, None, None, None, None, None, None, None, None, None),
    (-1, "", (None, None), [], [], [], Decimal("-99999999999999999999.99"), 0, -0.0, b"", [("n",), None, (None,)]),
]


def schema() -> StructOf:
    ((_, kind),) = given_of({"keytype": COLUMNS}).keys
    return kind


def cells(rows: list[bytes]) -> Any:
    return cells_of(pa.array(rows, pa.binary()))


def test_rows_of_the_types_pass() -> None:
    check_strictly(cells([row_bytes(row, schema()) for row in ROWS]), schema())
    check_strictly(cells([]), schema())


@pytest.mark.parametrize("times", [300, pytest.param(1500, marks=pytest.mark.slow)])
def test_changed_rows_are_refused_or_say_what_they_say(times: int) -> None:
    """No change of a byte or of the length leads to another error, and no row that passes has bytes it does not use."""
    chance = random.Random(41)
    refused = 0
    for _ in range(times):
        row = bytearray(row_bytes(chance.choice(ROWS), schema()))
        for _ in range(chance.choice((1, 1, 2))):
            row[chance.randrange(len(row))] = chance.choice((0, 1, 8, 255, chance.randrange(256)))
        changed = bytes(row[: chance.choice((len(row), len(row), chance.randrange(len(row) + 1)))])
        try:
            check_strictly(cells([changed]), schema())
        except CorruptError as error:
            refused += 1
            assert "found" in error.message and "expected" in error.message
        else:
            decode_rows(cells([changed]), schema())
    assert refused > times // 2


def test_random_bytes_are_never_another_error() -> None:
    numbers = np.random.default_rng(7)
    for size in (0, 7, 8, 88, 96, 104, 400):
        for _ in range(40):
            with pytest.raises(CorruptError):
                check_strictly(cells([numbers.bytes(size)]), schema())


def test_four_bytes_behind_a_value_are_those_of_an_old_release() -> None:
    row = row_bytes(ROWS[0], schema())
    plain, old = (decode_checked_values(cells([each]), schema()) for each in (row, row + b"\1\2\3\4"))
    assert [column.to_pylist() for column in plain] == [column.to_pylist() for column in old]
    with pytest.raises(CorruptError):
        check_strictly(cells([row + bytes(4)]), schema())


def one_column(kind: str) -> StructOf:
    ((_, found),) = given_of({"keytype": f"c {kind}"}).keys
    return found


def is_taken(stored: str, value: Any, given: str) -> bool:
    try:
        check_strictly(cells([row_bytes((value,), one_column(stored))]), one_column(given))
    except CorruptError:
        return False
    return True


FOUR_BYTES = ("int", "date", "float", "interval year to month")
EIGHT_BYTES = ("bigint", "timestamp", "timestamp_ntz", "double", "interval day to second", "decimal(18,2)")
BEHIND_SLOTS = ("string", "binary", "array<int>", "map<int, int>", "struct<a: string>", "decimal(30,0)", "interval")


@pytest.mark.parametrize(
    ("stored", "value", "taken"),
    [
        ("int", -1, {*FOUR_BYTES, *EIGHT_BYTES}),
        ("int", 1, {*FOUR_BYTES, *EIGHT_BYTES, "tinyint", "smallint", "boolean"}),
        ("bigint", -1, set(EIGHT_BYTES)),
        ("bigint", 300, {*FOUR_BYTES, *EIGHT_BYTES, "smallint"}),
        ("bigint", 10**18, set(EIGHT_BYTES) - {"decimal(18,2)"}),
        ("string", "abc", {"string", "binary"}),
        ("binary", b"\xff\xfe", {"binary"}),
        ("struct<a: string>", ("abc",), {"struct<a: string>", "binary", "string"}),
        ("array<int>", [1, -1], {"array<int>", "binary"}),
    ],
)
def test_which_types_cannot_be_told_apart(stored: str, value: Any, taken: set[str]) -> None:
    """The table of docs/spark-state.md."""
    every = ("boolean", "tinyint", "smallint", "void", *FOUR_BYTES, *EIGHT_BYTES, *BEHIND_SLOTS)
    assert {given for given in every if is_taken(stored, value, given)} == taken
