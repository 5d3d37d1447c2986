"""Key types and canonical values for property tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

Typed = tuple[pa.DataType, st.SearchStrategy[Any]]

# Lengths on both sides of the hash's borders at 4, 8 and 32 bytes; few letters, so that equal ones occur.
TEXTS = st.text("aé😀", max_size=2) | st.text("ab\x00", max_size=40) | st.text(max_size=20)
LIMITS = {bits: (1 << (bits - 1)) - 1 for bits in (8, 16, 32, 64)}
NAIVE = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))


def _whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-2, 2) | st.integers(-LIMITS[bits] - 1, LIMITS[bits])


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    top = 10**precision - 1
    return (st.integers(-2, 2) | st.integers(-top, top)).map(lambda n: Decimal(f"{n}E-{scale}"))


SCALARS: list[Typed] = [
    (pa.string(), TEXTS),
    (pa.binary(), st.binary(max_size=40)),
    (pa.bool_(), st.booleans()),
    (pa.int8(), _whole(8)),
    (pa.int16(), _whole(16)),
    (pa.int32(), _whole(32)),
    (pa.int64(), _whole(64)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", "UTC"), NAIVE.map(lambda moment: moment.replace(tzinfo=UTC))),
    (pa.timestamp("us"), NAIVE),
    (pa.duration("us"), st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000))),
    (pa.decimal128(10, 2), _decimals(10, 2)),
    (pa.decimal128(38, 18), _decimals(38, 18)),
]


def _list_of(member: Typed) -> Typed:
    kind, values = member
    return pa.list_(kind), st.lists(st.none() | values, max_size=3).map(tuple)


def _struct_of(members: list[Typed]) -> Typed:
    kind = pa.struct([(f"f{number}", kind) for number, (kind, _) in enumerate(members)])
    return kind, st.tuples(*(st.none() | values for _, values in members))


def key_types() -> st.SearchStrategy[Typed]:
    """A key type with the strategy of its canonical values."""
    return st.recursive(
        st.sampled_from(SCALARS),
        lambda inner: inner.map(_list_of) | st.lists(inner, min_size=1, max_size=5).map(_struct_of),
        max_leaves=4,
    )


@st.composite
def key_tables(draw: st.DrawFn) -> tuple[pa.Schema, list[tuple[Any, ...]]]:
    """A key schema and some canonical keys, several of them equal."""
    types = draw(st.lists(key_types(), min_size=1, max_size=5))
    schema = pa.schema([pa.field(f"k{number}", kind, nullable=False) for number, (kind, _) in enumerate(types)])
    keys = draw(st.lists(st.tuples(*(values for _, values in types)), min_size=1, max_size=6))
    return schema, [*keys, *draw(st.lists(st.sampled_from(keys), max_size=6))]
