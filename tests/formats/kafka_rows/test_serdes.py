"""Kafka's built-in serdes write single values as Kafka does, and refuse others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from support.parameters import named
from support.stores.kafka_vectors import encodings

from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.kafka_rows.serdes import arrow_type_of, serializer


def test_values_are_written_as_kafka_does() -> None:
    for case in encodings("serde:"):
        name = case["kind"].removeprefix("serde:")
        name = f"List<{case['params']['inner']}>" if name == "list" else name
        value = bytes.fromhex(case["decoded"]) if name == "bytes" else case["decoded"]
        with named(case):
            assert serializer(name)(value).hex() == case["hex"]  # type: ignore[union-attr]
            assert serializer(name)(None) is None


def test_every_nan_of_a_double_is_javas() -> None:
    for nan in (math.nan, -math.nan):
        assert serializer("Double")(nan) == bytes.fromhex("7ff8000000000000")


def test_names_are_found_in_any_case() -> None:
    assert serializer("lONG")(1) == bytes(7) + b"\x01"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("String", b"a"),
        ("String", "\ud800"),
        ("Short", 2**15),
        ("Integer", 2**31),
        ("Integer", 1.0),
        ("Integer", True),
        ("Long", -(2**63) - 1),
        ("Long", "1"),
        ("Float", 1e300),
        ("Double", "1"),
        ("Boolean", 1),
        ("UUID", "not a uuid"),
        ("UUID", 7),
        ("Bytes", "text"),
        ("Void", 0),
        ("List<Integer>", 1),
        ("List<Integer>", "12"),
        ("List<Integer>", ["1"]),
    ],
)
def test_a_value_of_another_type_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match="WRONG_VALUE"):
        serializer(name)(value)


@pytest.mark.parametrize("find", [serializer, arrow_type_of])
def test_unknown_names_are_refused(find: Callable[[str], object]) -> None:
    with pytest.raises(UnsupportedError, match=r"UNSUPPORTED_SERDE.*'Avro'"):
        find("Avro")
