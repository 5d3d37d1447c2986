"""Records of a broker's log files as kafka-dump-log prints them with --print-data-log.

    Dumping /var/kafka/shop-prices-changelog-0/00000000000000000000.log
    Log starting offset: 0
    baseOffset: 0 lastOffset: 1 count: 2 ... isTransactional: false isControl: false ...
    | offset: 0 CreateTime: 1714550400000 keySize: 2 valueSize: 3 sequence: -1 headerKeys: [] key: k0 payload: 1.5
    | offset: 1 CreateTime: 1714550400001 keySize: 2 valueSize: -1 sequence: -1 headerKeys: [h] key: k1

A null has the size -1 and is not printed. The sizes tell keys and values from what is around them, line breaks and all,
and whether their bytes were text: what is printed of others has another size. Only names of headers are printed.
Records of a transaction may have been aborted, so a dump with transactions is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.kernels.arrays import Bools, Ints

_BLOCK = 8 << 20
_LONGEST = 64 << 20
_RECORD, _BATCH, _FILE = b"| offset: ", b"baseOffset: ", b"Dumping "
_HEADS = (_FILE, b"Log starting offset: ", b"Starting offset: ", _BATCH, _RECORD)
_KEY, _VALUE, _NAMES_END = b" key: ", b" payload: ", b"]"
_HEAD = (
    r"^(?P<head>\| offset: (?P<offset>\d{1,18}) "
    r"(?:CreateTime|LogAppendTime|NoTimestampType): (?P<timestamp>-?\d{1,18}) "
    r"key[Ss]ize: (?P<key>-?\d{1,9}) value[Ss]ize: (?P<value>-?\d{1,9}) sequence: -?\d{1,10} headerKeys: \[)"
)
_PARTITION = re.compile(rb"-(\d{1,9})/[^/\n]*\n")
_REMEDY = "read the folder of the log files themselves, or export the topic with kcat -J"


def is_dump(start: bytes) -> bool:
    """Return whether a file that begins so was printed by kafka-dump-log."""
    return start.startswith(_HEADS)


def dump_batches(stream: Any, path: str) -> Iterator[pa.RecordBatch]:
    """Yield batches with the columns that a dump has. Raises InvalidInputError KAFKA_RECORDS, ArrowInvalid."""
    carried, partition, named = b"", -1, set[bool]()
    while part := stream.read(_BLOCK):
        block = carried + part
        # What is behind the last beginning of a line that may be a record's is not known to be whole.
        end = max(block.rfind(b"\n" + each) for each in (_RECORD, _BATCH, _FILE)) + 1
        if end:
            batch, partition = _batch(block[:end], partition, path, named)
            yield batch
        elif len(block) > _LONGEST:
            raise pa.ArrowInvalid(f"a record has more than {_LONGEST} bytes")
        carried = block[end:]
    if carried:
        if not carried.endswith(b"\n"):
            raise pa.ArrowInvalid("it ends within a line, so the end of that record may be missing")
        yield _batch(carried, partition, path, named)[0]


def _batch(block: bytes, partition: int, path: str, named: set[bool]) -> tuple[pa.RecordBatch, int]:
    """The records of whole lines, and the partition of the file of the last one; -1: unknown.

    ``named`` gets whether the folders of records name their partitions.
    """
    data = np.frombuffer(block, np.uint8)
    lines = np.concatenate([[0], np.flatnonzero(data == ord("\n"))[:-1] + 1])
    marks = np.sort(np.concatenate([_lines_with(data, lines, each) for each in _HEADS]))
    ends = np.append(marks[1:], len(data))
    of_records = _holds(data, marks, _RECORD)
    of_batches = _holds(data, marks, _BATCH)
    _refuse_transactions(Cells(data, marks, ends - marks).select(of_batches), path)
    changes = np.flatnonzero(_holds(data, marks, _FILE))
    found = [partition, *(_partition(block[marks[at] : ends[at]]) for at in changes.tolist())]
    records = np.flatnonzero(of_records)
    columns = _records(Cells(data, marks[records], ends[records] - marks[records]), path)
    of_each = np.array(found)[np.searchsorted(changes, records)]
    named.update(np.unique(of_each >= 0).tolist())
    if len(named) > 1:
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS,
            f"file {path}: found records of files whose folder names a partition, and of others, expected folders as "
            f"a broker names them, TOPIC-PARTITION; {_REMEDY}",
        )
    if True in named:
        columns["partition"] = pa.array(of_each)
    return pa.RecordBatch.from_pydict(columns), found[-1]


def _partition(line: bytes) -> int:
    found = _PARTITION.search(line)
    return -1 if found is None else int(found[1])


def _lines_with(data: Any, lines: Ints, head: bytes) -> Ints:
    found: Ints = lines[_holds(data, lines, head)]
    return found


def _holds(data: Any, at: Ints, text: bytes) -> Bools:
    """Return whether the text stands at each of these positions."""
    found: Bools = (at >= 0) & (at <= len(data) - len(text))
    for n, octet in enumerate(text):
        found[found] = data[at[found] + n] == octet
    return found


def _refuse_transactions(batches: Cells, path: str) -> None:
    texts = batches.binary()
    if len(texts) and pc.any(pc.match_substring(texts, b"isTransactional: true")).as_py():
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS,
            f"file {path}: found records of transactions, of which some may have been aborted; {_REMEDY}",
        )


def _records(cells: Cells, path: str) -> dict[str, pa.Array]:
    """Offsets, timestamps, keys and values of records, each in the cell from its line to the next one's."""
    texts = cells.binary()
    heads = pc.extract_regex(texts, _HEAD)
    wrong = ~heads.is_valid().to_numpy(zero_copy_only=False)
    _refuse(cells, wrong, path, "expected offset, CreateTime, keySize, valueSize, sequence, headerKeys of a record")
    number = {
        name: pc.struct_field(heads, name).cast(pa.string()).cast(pa.int64()).to_numpy()
        for name in ("offset", "timestamp", "key", "value")
    }
    end = cells.start + cells.size - 1
    found = {}
    for name, label in (("value", _VALUE), ("key", _KEY)):
        missing = number[name] < 0
        begin = np.where(missing, end, end - number[name])
        wrong |= ~missing & ~_holds(cells.data, begin - len(label), label)
        found[name] = Cells(cells.data, begin, np.where(missing, 0, end - begin), missing)
        end = np.where(missing, end, begin - len(label))
    names = cells.start + pc.binary_length(pc.struct_field(heads, "head")).to_numpy()
    wrong |= (end <= names) | ~_holds(cells.data, end - 1, _NAMES_END)
    expected = "expected a key and a value in the sizes that stand before them, which only bytes of UTF-8 have"
    _refuse(cells, wrong, path, f"{expected}, printed with --print-data-log and no decoders; {_REMEDY}")
    columns = {name: pa.array(number[name]) for name in ("offset", "timestamp")}
    return columns | {name: each.copied() for name, each in found.items()}


def _refuse(cells: Cells, wrong: Bools, path: str, expected: str) -> None:
    if wrong.any():
        line = cells.cell(int(wrong.argmax())).decode(errors="replace")
        raise InvalidInputError(ErrorCode.KAFKA_RECORDS, f"file {path}: found {shown(line, 160)}, {expected}")
