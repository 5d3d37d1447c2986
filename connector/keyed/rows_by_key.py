"""The rows of a task by key: sorted as columns, so that each key's rows are a slice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.formats.serdes.natural_keys import keys_to_bytes
from statestore.formats.values.key_codec import KeyCodec


def rows_by_key(
    columns: pa.Schema, keys: list[pa.Array], rows: pa.Table, arrival: pa.Array
) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Yield each key, as users write it, with its rows in the order of ``arrival``; keys in order of their first rows.

    ``keys`` are the key columns of the rows, in the types of ``columns``.
    """
    if not rows.num_rows:
        return
    order = np.argsort(arrival.to_numpy(), kind="stable")
    arrived = [key.take(pa.array(order)) for key in keys]
    # Codes are assigned in order of appearance, so sorting by them keeps both orders.
    codes = keys_to_bytes(columns, arrived).dictionary_encode().indices.to_numpy()
    by_key = np.argsort(codes, kind="stable")
    sorted_rows = rows.take(pa.array(order[by_key])).combine_chunks().to_batches()[0]
    begins = np.flatnonzero(np.diff(codes[by_key], prepend=-1))
    codec, first = KeyCodec(columns), pa.array(by_key[begins])
    cells = zip(*(key.take(first).to_pylist() for key in arrived), strict=True)
    ends = [*begins[1:].tolist(), rows.num_rows]
    for cell, begin, end in zip(cells, begins.tolist(), ends, strict=True):
        yield codec.to_user(codec.normalize(cell)), sorted_rows.slice(begin, end - begin)
