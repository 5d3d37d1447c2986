"""Stored rows of one provider as the other stores them: the same rows in other frames.

The HDFS-backed provider stores bare rows, RocksDB a version before each, and keys of session windows in two parts. Row
checksums are over what is stored, so they are verified and made anew. Values are not decoded, and neither are keys but
for those of two parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.bytes.byte_parts import joined_parts
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Provider, Store
from statestore.formats.spark.checkpoint.schema_files import FamilySchema, KeyEncoder
from statestore.formats.spark.checkpoint.spark_schema import StructOf
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.providers.stored_rows import StoredRows
from statestore.formats.spark.row_places import bytes_for_texts, key_encoder
from statestore.formats.spark.rows.row_encoding import (
    CHECKSUM_BYTES,
    SIZE_BYTES,
    VERSION,
    RowForm,
    decode_keys,
    verify_checksums,
    without_version,
)
from statestore.formats.spark.rows.row_framing import WrittenForm, key_parts, with_checksums, with_sized_checksums

_VERSION = bytes([VERSION])
Frame = Callable[[StoredRows], tuple[Cells, Cells]]
"""Function from stored rows to keys and values as they are to be stored."""


def frame_of(checkpoint: Checkpoint, store: Store, family: FamilySchema, provider: Provider) -> Frame:
    """The function from the rows of a family to those that a provider stores.

    A store with families stays with its provider. The function raises CorruptError SPARK_STATE_ROW, UnsupportedError
    SPARK_STATE_UNSUPPORTED.
    """
    if provider == checkpoint.provider:
        return _as_stored
    encoder = key_encoder(store, family, bare=False)
    return _Reframed(provider == "hdfs", checkpoint.has_checksums, bytes_for_texts(family.key), encoder)


def _as_stored(rows: StoredRows) -> tuple[Cells, Cells]:
    return rows.keys, rows.values


@dataclass(frozen=True)
class _Reframed:
    """The change of frames; ``bare`` is true to those of the HDFS-backed provider."""

    bare: bool
    checksums: bool
    key: StructOf
    encoder: KeyEncoder

    def __call__(self, rows: StoredRows) -> tuple[Cells, Cells]:
        keys, values = self._keys(rows.keys), self._values(rows)
        if self.checksums:
            values = with_checksums(keys, values) if self.bare else with_sized_checksums(keys, values)
        return keys, values

    def _keys(self, keys: Cells) -> Cells:
        if self.encoder.ordering == "none":
            return without_version(keys) if self.bare else joined_parts([_VERSION, keys], len(keys))
        struct = decode_keys(keys, self.key, self.encoder, RowForm(bare=not self.bare))
        columns = [struct.field(number) for number in range(len(self.key.fields))]
        form = WrittenForm(bare=self.bare)
        return joined_parts(key_parts(columns, self.key, self.encoder, form, len(keys)), len(keys))

    def _values(self, rows: StoredRows) -> Cells:
        values = rows.values
        if self.checksums:
            values = self._checked(rows.keys, values)
        return without_version(values) if self.bare else joined_parts([_VERSION, values], len(values))

    def _checked(self, keys: Cells, values: Cells) -> Cells:
        """Values without the checksums of their provider, which are verified."""
        front = CHECKSUM_BYTES + (SIZE_BYTES if self.bare else 0)
        rows = values.behind(front, "a value with its checksum", corrupt_row)
        if self.bare and (values.numbers(CHECKSUM_BYTES, "<i4") != rows.size).any():
            raise corrupt_row("found a value of another size than it says, or several values of one key")
        verify_checksums(np.asarray(values.numbers(0, "<u4")), keys, rows)
        return rows
