"""Checks of the description of a new keyed store."""

from __future__ import annotations

from statestore.catalog.keyed.rows.row_keys import prefix_encoder
from statestore.catalog.keyed.rows.state_spec import TAKEN_COLUMNS
from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError


def check_keyed_spec(spec: StoreSpec) -> None:
    """Raise InvalidInputError WRONG_SCHEMA or UNKNOWN_OPTION, UnsupportedError UNSUPPORTED_KEY_TYPE."""
    if spec.serde != "natural":
        raise InvalidInputError(
            ErrorCode.UNKNOWN_OPTION, f"serde={spec.serde!r}: a keyed store has its own; leave it out"
        )
    taken = [name for name in spec.key.names if name.lower() in TAKEN_COLUMNS]
    if taken:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"key columns {taken}: tables of states already have columns of these names; rename the key columns",
        )
    prefix_encoder(spec.key)
