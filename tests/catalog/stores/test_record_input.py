"""Change types of a written table say which rows delete and which are left out."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pytest

from statestore.catalog.stores.record_input import CHANGE_TYPES, change_types
from statestore.formats.errors import InvalidInputError


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_every_mixture_of_change_types(kind: pa.DataType) -> None:
    for names in product([*CHANGE_TYPES, None], repeat=3):
        deleted, kept = change_types(pa.array(["delete", *names], kind).slice(1))
        assert deleted.tolist() == [name == "delete" for name in names]
        expected = [name != "update_preimage" for name in names]
        assert all(expected) if kept is None else kept.to_pylist() == expected


def test_an_unknown_change_type_is_named() -> None:
    with pytest.raises(InvalidInputError, match="holds 'upsert'"):
        change_types(pa.array(["insert", "upsert", "delete"]))
