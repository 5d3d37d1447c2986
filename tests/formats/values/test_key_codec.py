"""Keys and values as users write them become canonical rows and columns, and are converted back for users."""

from __future__ import annotations

import pickle
from collections import namedtuple
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.key_strategies import key_tables
from support.properties import few_or_many

from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.values.key_codec import KeyCodec, ValueCodec

ITEM = pa.schema([("item", pa.string())])
PAIR = pa.schema([("item", pa.string()), ("size", pa.int32())])
POINT = pa.struct([("x", pa.int64()), ("y", pa.int64())])
Pair = namedtuple("Pair", "size item")


@few_or_many(10, 100, key_tables())
def test_rows_survive_columns_and_user_form(table: tuple[pa.Schema, list[tuple[Any, ...]]]) -> None:
    """Canonical rows are their own normal form and come back from columns, dicts and bare values."""
    schema, keys = table
    codec = KeyCodec(schema)
    columns = codec.to_columns(keys)
    assert [column.type for column in columns] == schema.types
    stored = zip(*(column.to_pylist() for column in columns), strict=True)
    assert [codec.normalize(cells) for cells in stored] == keys
    assert [codec.normalize(key) for key in keys] == keys
    assert [codec.normalize(codec.to_user(key)) for key in keys] == keys


@pytest.mark.parametrize("key", ["curry", ("curry",), {"item": "curry"}, np.str_("curry")])
def test_single_column_key(key: object) -> None:
    """Bare, tuple and dict are one key; users see it bare."""
    codec = KeyCodec(ITEM)
    assert codec.normalize(key) == ("curry",)
    assert codec.to_user(("curry",)) == "curry"


@pytest.mark.parametrize("key", [("curry", 2), {"size": 2, "item": "curry"}, Pair(size=2, item="curry")])
def test_key_of_several_columns(key: object) -> None:
    """Names decide where there are names, order where there are none; users see a dict."""
    codec = KeyCodec(PAIR)
    assert codec.normalize(key) == ("curry", 2)
    assert codec.to_user(("curry", 2)) == {"item": "curry", "size": 2}


@pytest.mark.parametrize(
    ("schema", "key", "code", "words"),
    [
        (ITEM, None, "NULL_KEY", "item"),
        (ITEM, (None,), "NULL_KEY", "'item' is null"),
        (PAIR, {"item": "a", "size": None}, "NULL_KEY", "'size' is null"),
        (ITEM, 7, "WRONG_KEY", "'item': found int 7, expected string"),
        (ITEM, ["curry"], "WRONG_KEY", "found list"),
        (ITEM, ("a", "b"), "WRONG_KEY", "item: string; found a tuple of 2"),
        (ITEM, {"itm": "a"}, "WRONG_KEY", "found columns itm"),
        (PAIR, None, "NULL_KEY", "item, size"),
        (PAIR, "curry", "WRONG_KEY", "found a single str"),
        (PAIR, ["curry", 2], "WRONG_KEY", "found a single list"),
        (PAIR, {"item": "a"}, "WRONG_KEY", "item: string, size: int32; found columns item"),
        (PAIR, {"item": "a", "size": 1, "more": 1}, "WRONG_KEY", "more"),
        (PAIR, ("a", 1 << 31), "WRONG_KEY", "'size': found int 2147483648"),
    ],
)
def test_refused_keys(schema: pa.Schema, key: object, code: str, words: str) -> None:
    """The error names the column, what was found and what was expected."""
    with pytest.raises(InvalidInputError) as caught:
        KeyCodec(schema).normalize(key)
    assert caught.value.code == code
    assert words in caught.value.message


def test_bare_struct_and_list_keys() -> None:
    """A struct is written as a dict, a list as a list; a tuple is always one member per column."""
    struct, many = KeyCodec(pa.schema([("p", POINT)])), KeyCodec(pa.schema([("l", pa.list_(pa.int64()))]))
    for key in ({"y": 2, "x": 1}, {"p": {"x": 1, "y": 2}}, ({"x": 1, "y": 2},), ((1, 2),)):
        assert struct.normalize(key) == ((1, 2),)
    assert struct.to_user(((1, None),)) == {"x": 1, "y": None}
    for listed in ([1, None], ([1, None],), {"l": [1, None]}):
        assert many.normalize(listed) == ((1, None),)
    with pytest.raises(InvalidInputError, match="WRONG_KEY"):
        many.normalize((1, 2))


def test_struct_whose_only_field_has_the_columns_name() -> None:
    """A dict of just the column's name is the row, and what it has for the column names the struct."""
    codec = KeyCodec(pa.schema([("s", pa.struct([("s", pa.int64())]))]))
    for given in ({"s": {"s": 1}}, {"s": 1}, 1, (1,), ((1,),)):
        assert codec.normalize(given) == ((1,),)
    with pytest.raises(InvalidInputError, match="WRONG_KEY"):
        codec.normalize({"s": {"t": 1}})


def test_a_struct_of_one_field_is_named_by_its_field_at_any_depth() -> None:
    inner = pa.struct([("k", pa.string())])
    deep = KeyCodec(pa.schema([("key", pa.struct([("w", inner)]))]))
    for given in ("a", ("a",), {"key": "a"}, {"w": {"k": "a"}}, ((("a",),),)):
        assert deep.normalize(given) == ((("a",),),)
    two = KeyCodec(pa.schema([("key", inner), ("n", pa.int64())]))
    assert two.normalize(("a", 1)) == two.normalize({"key": "a", "n": 1}) == (("a",), 1)
    several = KeyCodec(pa.schema([("key", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))]))]))
    assert several.normalize((1, [2, None])) == several.normalize(((1, [2, None]),)) == ((1, (2, None)),)
    assert several.normalize((1, None)) == ((1, None),)
    for wrong in (1, (1,), (1, [2], 3)):
        with pytest.raises(InvalidInputError, match="WRONG_KEY"):
            several.normalize(wrong)


def test_map_values() -> None:
    """Every dict is the map of a single map column, also one that holds the column's name."""
    codec = ValueCodec(pa.schema([("m", pa.map_(pa.string(), pa.int64()))]))
    for value in ({"m": 1, "n": None}, ({"m": 1, "n": None},), [("m", 1), ("n", None)]):
        assert codec.normalize(value) == ((("m", 1), ("n", None)),)
    assert codec.normalize({"m": 1}) == ((("m", 1),),)
    assert codec.to_user(((("m", 1),),)) == {"m": 1}
    assert codec.to_columns([((("m", 1),),), (None,)])[0].to_pylist() == [[("m", 1)], None]


def test_map_values_with_struct_keys() -> None:
    """Maps with struct keys come back from columns as they went in."""
    codec = ValueCodec(pa.schema([("m", pa.map_(POINT, POINT))]))
    row = ((((1, 2), (3, None)), ((2, 2), None)),)
    assert codec.normalize((codec.to_columns([row])[0][0].as_py(),)) == row
    assert codec.to_user(row) == {(1, 2): {"x": 3, "y": None}, (2, 2): None}


def test_nulls_in_values() -> None:
    """Any value column may be null, but none may be left out."""
    codec = ValueCodec(PAIR)
    assert codec.normalize({"item": None, "size": None}) == (None, None)
    assert ValueCodec(ITEM).normalize(None) == (None,)
    assert ValueCodec(ITEM).to_user((None,)) is None
    for value in (None, {"item": "a"}, {}):
        with pytest.raises(InvalidInputError, match="WRONG_VALUE"):
            codec.normalize(value)


def test_values_without_columns() -> None:
    """A store may have keys alone."""
    codec = ValueCodec(pa.schema([]))
    assert codec.normalize({}) == codec.normalize(()) == ()
    assert codec.to_user(()) == {}
    assert codec.to_columns([(), ()]) == []
    with pytest.raises(InvalidInputError, match="WRONG_VALUE"):
        codec.normalize(1)


def test_floats_are_values_but_not_keys() -> None:
    schema = pa.schema([("price", pa.float64())])
    assert ValueCodec(schema).normalize(8) == (8.0,)
    with pytest.raises(UnsupportedError, match="UNSUPPORTED_KEY_TYPE"):
        KeyCodec(schema)


def test_codecs_are_picklable() -> None:
    """Codecs travel to Spark's workers."""
    codec = pickle.loads(pickle.dumps(KeyCodec(PAIR)))
    assert codec.hash(codec.normalize(("a", 1))) == KeyCodec(PAIR).hash(("a", 1))
    assert pickle.loads(pickle.dumps(ValueCodec(PAIR))).schema == PAIR


def test_no_rows() -> None:
    schema = pa.schema([("p", POINT), ("s", pa.string())])
    assert [len(column) for column in KeyCodec(schema).to_columns([])] == [0, 0]
