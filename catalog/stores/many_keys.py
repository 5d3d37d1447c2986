"""The keys of a read of many keys, as users give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown


def many_keys(keys: Any) -> Iterable[Any]:
    """Return the keys of `get_many`, one by one. Raises InvalidInputError WRONG_KEY for what is not several keys."""
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        return keys.to_pylist()  # type: ignore[no-any-return]
    if isinstance(keys, str | bytes | Mapping) or not isinstance(keys, Iterable):
        raise InvalidInputError(
            ErrorCode.WRONG_KEY,
            f"keys is {shown(keys)} ({type(keys).__name__}); expected a list or another iterable of keys, or an Arrow "
            "array; for one key call get",
        )
    return keys
