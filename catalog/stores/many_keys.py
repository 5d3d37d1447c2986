"""The keys of a read of many keys, as users give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.values.key_codec import KeyCodec


def many_keys(keys: Any) -> Iterable[Any]:
    """Return the keys of `get_many`, one by one; of a frame each row is a key, by the names of its columns.

    Raises InvalidInputError WRONG_KEY for what is not several keys.
    """
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        return keys.to_pylist()  # type: ignore[no-any-return]
    if type(keys).__module__.partition(".")[0] == "pandas" and hasattr(keys, "columns"):
        return pa.Table.from_pandas(keys, preserve_index=False).to_pylist()  # type: ignore[no-any-return]
    if hasattr(keys, "__arrow_c_stream__"):
        return pa.chunked_array(keys).to_pylist()  # type: ignore[no-any-return]
    if isinstance(keys, str | bytes | Mapping) or not isinstance(keys, Iterable):
        raise InvalidInputError(
            ErrorCode.WRONG_KEY,
            f"keys is {shown(keys)} ({type(keys).__name__}); expected a list or another iterable of keys, or an Arrow "
            "array; for one key call get",
        )
    return keys


def key_columns(keys: Sequence[Any], codec: KeyCodec) -> list[pa.Array]:
    """Return keys as users give them as Arrow columns. Raises InvalidInputError as `KeyCodec.normalize` does."""
    if len(codec.schema) == 1 and codec.schema.field(0).type == pa.string() and set(map(type, keys)) == {str}:
        try:
            return [pa.array(keys, pa.string())]
        except UnicodeEncodeError:  # a lone surrogate, which is refused with its name below
            pass
    return codec.to_columns(list(map(codec.normalize, keys)))
