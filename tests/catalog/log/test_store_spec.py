"""`store.json`: the page's example is readable, a written file reads back equal, and damage is never another store."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import xxhash
from support.paths import DOCS

from statestore.catalog.log.store_spec import StoreSpec, check_spec, decode_spec, encode_spec
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


def test_the_example_of_the_page() -> None:
    found = re.search(r"## The store's description.*?```json\n(.*?)\n```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    assert decode_spec(found[1].encode(), "page") == SPEC
    assert encode_spec(SPEC).decode() == found[1]


def test_what_was_written_comes_back() -> None:
    nested = make_schema({"a b`": "struct<x:array<map<string,double>>,`y z`:timestamp_ntz>", "ü": "binary"}, "value")
    for spec in (SPEC, replace(SPEC, value=nested, history_retention=None, segment_interval=None, key_groups=1)):
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


def test_a_newer_format_is_not_called_damage() -> None:
    fields = json.loads(encode_spec(SPEC)) | {"format": 2}
    del fields["checksum"]
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    data = json.dumps(fields | {"checksum": xxhash.xxh3_64_hexdigest(canonical.encode())}).encode()
    with pytest.raises(UnsupportedError, match="UNSUPPORTED_FORMAT"):
        decode_spec(data, "store.json")


@pytest.mark.parametrize("name", ["item", "ITEM"])
def test_key_and_value_share_no_name(name: str) -> None:
    """Nor one that Spark and DuckDB take for the same."""
    with pytest.raises(InvalidInputError, match=f"WRONG_SCHEMA.*{name}"):
        check_spec(replace(SPEC, value=make_schema({name: "int"}, "value")))
