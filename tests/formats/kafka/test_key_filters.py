"""Keys that a filter names, as the bytes that are looked up."""

from __future__ import annotations

from typing import Any

import pytest

from statestore.formats.kafka.columns.store_form import StoreForm
from statestore.formats.kafka.columns.store_kinds import KINDS
from statestore.formats.kafka.key_filters import encoded_keys
from statestore.formats.values.filters import Filter


@pytest.mark.parametrize(
    ("serde", "value", "keys"),
    [
        ("Double", 0.0, {"0000000000000000", "8000000000000000"}),
        ("Float", -0.0, {"00000000", "80000000"}),
        ("Double", 1.5, {"3ff8000000000000"}),
        ("Double", float("nan"), None),  # which clients other than Java's write in many forms
        ("Long", 7, {"0000000000000007"}),
        ("UUID", "b0b17d52-3db8-ba86-621b-cd5717b1f9d4", None),  # which may have upper-case letters
    ],
)
def test_all_bytes_that_equal_a_key_are_looked_up(serde: str, value: Any, keys: set[str] | None) -> None:
    form = StoreForm("key-value", serde, "String")
    found = encoded_keys(form, KINDS["key-value"], [Filter("key", "=", value)])
    assert (None if found is None else {key.hex() for key in found}) == keys
