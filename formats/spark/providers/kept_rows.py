"""Rows that look-ups of whole keys have found in the local files of an HDFS-backed partition, kept for the next one.

Such a look-up reads all files, where they are larger than those whose records are kept (`kept_records`,
`kept_positions`). An edit asks for its rows several times: as its statement reads them, as they are replaced, and as
the copy is verified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from statestore.formats.notices import is_verification
from statestore.formats.places.folder import Folder
from statestore.formats.places.kept_results import kept_result
from statestore.formats.spark.checkpoint.checkpoint_files import DataFile
from statestore.formats.spark.checkpoint.crc_files import side_name
from statestore.formats.spark.providers.kept_positions import LEAST_STORED
from statestore.formats.spark.providers.stored_rows import KeyBounds, whole_keys
from statestore.formats.values.without_pandas import arrow_numbers

_MOST_KEYS = 2000


def kept_rows(
    folder: Folder,
    files: Sequence[DataFile],
    checksums: bool,
    ranges: Sequence[KeyBounds],
    read: Callable[[], Iterable[pa.RecordBatch]],
) -> Sequence[pa.RecordBatch] | None:
    """Return the rows (key, value) of whole keys as of the newest of the files, which ``read`` reads or has read.

    None: these files or ranges are not for this way. Raises the errors of ``read``.
    """
    keys = whole_keys(ranges)
    fits = 0 < len(ranges) <= _MOST_KEYS and sum(each.size for each in files) >= LEAST_STORED
    if keys is None or not fits or not folder.is_local or is_verification():
        return None

    def held() -> tuple[Sequence[pa.RecordBatch], int]:
        found = [batch for batch in read() if batch.num_rows]
        # Rows that are a slice of a block would keep all of it.
        whole = [batch.take(arrow_numbers(np.arange(batch.num_rows))) for batch in found]
        return whole, sum(batch.nbytes for batch in whole) + sum(map(len, keys))

    names = [name for file in files for name in (file.name, side_name(file.name))]
    key = ("rows", folder.path, checksums, tuple((file.name, file.size) for file in files), keys)
    return kept_result(key, [folder.at(name).path for name in names], held)
