"""Checkpoints of the HDFS-backed provider of any size, as Spark writes them: a count by word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.kernels.arrays import Ints

_BEGAN_MS = 1_700_000_000_000
PROVIDER = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_TEXT = 12
_KEY = [("k_nulls", "<i8"), ("k_slot", "<u4", 2), ("k_text", f"S{_TEXT}"), ("k_pad", "<u4")]
_PUT = np.dtype([("key_size", ">i4"), *_KEY, ("value_size", ">i4"), ("v_nulls", "<i8"), ("count", "<i8")])
_DELETE = np.dtype([("key_size", ">i4"), *_KEY, ("value_size", ">i4")])
_END = b"\xff\xff\xff\xff"
_AT_ONCE = 1 << 20


def write_checkpoint(
    folder: Path, keys: int, batches: int, partitions: int = 1, snapshots: int | None = None, *, hashed: bool = False
) -> Path:
    """Batch 0 writes every word; each later one every tenth from its own number on with a count of its number, and
    deletes every hundredth from its number plus 5. There is a snapshot every ``snapshots`` batches.

    ``hashed``: words are in the partitions where Spark puts them, and the checkpoint says so.
    """
    store = folder / "state" / "0"
    write_metadata(folder, batches, partitions, PROVIDER, hashed=hashed)
    places = hashed_places(keys, partitions) if hashed else np.arange(keys) % partitions
    counts = np.full(keys, -1, np.int64)
    for batch in range(batches):
        put, deleted = written_by(batch, keys)
        counts[put], counts[deleted] = batch, -1
        for number in range(partitions):
            place = store / str(number)
            place.mkdir(exist_ok=True)
            mine = put[places[put] == number], deleted[places[deleted] == number]
            parts = [_puts(mine[0], counts[mine[0]]), _deletions(mine[1])]
            _write(place / f"{batch + 1}.delta", parts)
            if snapshots is not None and (batch + 1) % snapshots == 0:
                live = np.flatnonzero((counts >= 0) & (places == number))
                _write(place / f"{batch + 1}.snapshot", [_puts(live, counts[live])])
    return folder


def hashed_places(keys: int, partitions: int) -> Ints:
    """The partition of each word, by Spark's hash: Murmur3 of its 12 bytes, with the seed 42."""
    found = np.empty(keys, np.int64)
    for at in range(0, keys, _AT_ONCE):
        numbers = np.arange(at, min(at + _AT_ONCE, keys))
        mixed = np.full(len(numbers), 42, np.uint32)
        for block in words(numbers).view("<u4").reshape(-1, _TEXT // 4).T:
            mixed ^= _turned(block * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
            mixed = _turned(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        mixed ^= np.uint32(_TEXT)
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            mixed = (mixed ^ (mixed >> np.uint32(shift))) * np.uint32(factor)
        mixed ^= mixed >> np.uint32(16)
        found[at : at + len(numbers)] = mixed.astype(np.int32) % partitions
    return found


def _turned(numbers: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (numbers << np.uint32(bits)) | (numbers >> np.uint32(32 - bits))


def write_metadata(folder: Path, batches: int, partitions: int, provider: str, *, hashed: bool = False) -> None:
    """Write all of a checkpoint but its state."""
    store = folder / "state" / "0"
    _text(folder / "metadata", {"id": "00000000-0000-4000-8000-000000000000"}, versioned=False)
    info = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": partitions}
    operator = {"operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"}, "stateStoreInfo": [info]}
    _text(store / "_metadata" / "metadata", operator)
    schemas = [_schema("word", "string"), _schema("count", "long")]
    schema = _utf("v2") + b"".join((1).to_bytes(4) + _utf(text) for text in schemas)
    (store / "0" / "_metadata").mkdir(parents=True)
    (store / "0" / "_metadata" / "schema").write_bytes(schema)
    settings = {
        "spark.sql.streaming.stateStore.providerClass": provider,
        "spark.sql.shuffle.partitions": str(partitions),
        **({"spark.sql.streaming.statefulOperator.useStrictDistribution": "true"} if hashed else {}),
    }
    for batch in range(batches):
        said = {"batchWatermarkMs": 0, "batchTimestampMs": _BEGAN_MS + 1000 * batch, "conf": settings}
        _text(folder / "offsets" / str(batch), said, more='{"logOffset":0}')
        _text(folder / "commits" / str(batch), {"nextBatchWatermarkMs": 0})


def puts_of(numbers: Ints, counts: Ints) -> Iterator[tuple[bytes, bytes]]:
    """Yield the key and the value of each word, as UnsafeRows."""
    data = _puts(numbers, counts)
    for at in range(0, len(data), _PUT.itemsize):
        yield data[at + 4 : at + 36], data[at + 40 : at + 56]


def written_by(batch: int, keys: int) -> tuple[Ints, Ints]:
    """(words that a batch puts, words that it deletes), by their numbers."""
    if not batch:
        return np.arange(keys), np.empty(0, np.int64)
    return np.arange(batch % 10, keys, 10), np.arange((batch + 5) % 100, keys, 100)


def words(numbers: Ints) -> npt.NDArray[np.bytes_]:
    """The words of these numbers: 12 bytes each, scattered like real words."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return np.char.mod(b"%012x", (mixed >> np.uint64(16)).astype(object)).astype(f"S{_TEXT}")


def _puts(numbers: Ints, counts: Ints) -> bytes:
    rows = np.zeros(len(numbers), _PUT)
    _fill_keys(rows, numbers)
    rows["value_size"], rows["count"] = 16, counts
    return rows.tobytes()


def _deletions(numbers: Ints) -> bytes:
    rows = np.zeros(len(numbers), _DELETE)
    _fill_keys(rows, numbers)
    rows["value_size"] = -1
    return rows.tobytes()


def _fill_keys(rows: npt.NDArray[np.void], numbers: Ints) -> None:
    rows["key_size"], rows["k_slot"], rows["k_text"] = 32, (_TEXT, 16), words(numbers)


def _write(path: Path, parts: list[bytes]) -> None:
    with pa.CompressedOutputStream(str(path), "zstd") as stream:
        for part in (*parts, _END):
            stream.write(part)


def _schema(name: str, kind: str) -> str:
    return json.dumps({"type": "struct", "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}}]})


def _utf(text: str) -> bytes:
    return len(text).to_bytes(2) + text.encode()


def _text(path: Path, document: object, *, versioned: bool = True, more: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*(["v1"] if versioned else []), json.dumps(document), *([more] if more else [])]))
