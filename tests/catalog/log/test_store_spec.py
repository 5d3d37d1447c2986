"""`store.json`: the page's example is readable, a written file reads back equal, and damage is never another store."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
import xxhash
from support.paths import DOCS

from statestore.catalog.log.store_spec import Captured, StoreSpec, check_spec, decode_spec, encode_spec
from statestore.formats.errors import CorruptError, InvalidInputError, UnsupportedError
from statestore.formats.values.types import make_schema

PAGE = DOCS / "log-format.md"
SPEC = StoreSpec(
    name="prices",
    store_id="0123456789abcdef0123456789abcdef",
    kind="versioned",
    key=make_schema({"item": "string"}, "key"),
    value=make_schema({"price": "decimal(10,2)"}, "value"),
    history_retention=86_400_000,
    segment_interval=3_600_000,
    serde="natural",
    key_groups=128,
)
KEPT = replace(SPEC, history_retention=None, segment_interval=None)
CAPTURED = Captured("id", "/ü", "counts", "bag", ("batch", "batches"), (), (), ("item",), own_times=True)


def test_the_example_of_the_page() -> None:
    found = re.search(r"## The store's description.*?```json\n(.*?)\n```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    assert decode_spec(found[1].encode(), "page") == SPEC
    assert encode_spec(SPEC).decode() == found[1]


def test_what_was_written_comes_back() -> None:
    nested = make_schema({"a b`": "struct<x:array<map<string,double>>,`y z`:timestamp_ntz>", "ü": "binary"}, "value")
    others = replace(SPEC, value=nested, history_retention=None, segment_interval=None, key_groups=1)
    for spec in (SPEC, others, replace(KEPT, captured=CAPTURED), replace(KEPT, captured=replace(CAPTURED, hidden=()))):
        assert decode_spec(encode_spec(spec), "store.json") == spec


def test_every_flipped_bit_is_noticed() -> None:
    data = encode_spec(SPEC)
    for position in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        try:
            assert decode_spec(bytes(damaged), "store.json") == SPEC  # white space for white space
        except CorruptError as error:
            assert error.code == "STORE_CORRUPT" and "store.json" in error.message


@pytest.mark.parametrize("text", [b"", b"null", b"[]", b"{}", b"7", b"\xff", b"[" * 100_000])
def test_what_is_no_description(text: bytes) -> None:
    with pytest.raises(CorruptError, match=r"STORE_CORRUPT.*store\.json"):
        decode_spec(text, "store.json")


def _sealed(fields: dict[str, Any]) -> bytes:
    rest = {name: value for name, value in fields.items() if name != "checksum"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return json.dumps(rest | {"checksum": xxhash.xxh3_64_hexdigest(canonical.encode())}).encode()


def test_a_newer_format_is_not_called_damage() -> None:
    fields = json.loads(encode_spec(SPEC)) | {"format": 3}
    with pytest.raises(UnsupportedError, match="UNSUPPORTED_FORMAT"):
        decode_spec(_sealed(fields), "store.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"captured": replace(CAPTURED, key=("other",))}, "other"),
        ({"captured": replace(CAPTURED, hidden=("none",))}, "none"),
        ({"captured": replace(CAPTURED, key=("item",))}, "no key column is hidden"),
        ({"captured": CAPTURED, "history_retention": 5}, "retention of 5 ms"),
        ({"captured": CAPTURED, "serde": "kafka", "history_retention": 5}, "serde 'kafka'"),
        ({"captured": CAPTURED, "kind": "key_value"}, "kind 'key_value'"),
    ],
)
def test_a_captured_state_that_the_store_cannot_keep(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=f"WRONG_OPTIONS.*{message}"):
        check_spec(replace(KEPT, **changes))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("words", ["batch"]),
        ("words", "batch"),
        ("key", [7]),
        ("key", ["\ud800"]),
        ("state", None),
        ("source", ["id"]),
        ("own_times", 1),
        ("unknown", "x"),
    ],
)
def test_a_captured_state_of_another_form_is_damage(field: str, value: Any) -> None:
    fields = json.loads(encode_spec(replace(KEPT, captured=CAPTURED)))
    fields["captured"][field] = value
    with pytest.raises(CorruptError, match="STORE_CORRUPT"):
        decode_spec(_sealed(fields), "store.json")


@pytest.mark.parametrize("number", [1, 2])
def test_a_captured_state_has_a_format_of_its_own(number: int) -> None:
    """So that a release which does not know it refuses the store, and does not write to it."""
    fields = json.loads(encode_spec(replace(KEPT, captured=CAPTURED if number == 1 else None)))
    assert fields["format"] != number
    with pytest.raises(CorruptError, match=f"a captured state in format {number}"):
        decode_spec(_sealed(fields | {"format": number}), "store.json")


@pytest.mark.parametrize("name", ["item", "ITEM"])
def test_key_and_value_share_no_name(name: str) -> None:
    """Nor one that Spark and DuckDB take for the same."""
    with pytest.raises(InvalidInputError, match=f"WRONG_SCHEMA.*{name}"):
        check_spec(replace(SPEC, value=make_schema({name: "int"}, "value")))
