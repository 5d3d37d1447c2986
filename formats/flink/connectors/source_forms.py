"""Splits and enumerators of other sources: number sequences, hybrid sources, Pulsar.

Source: ``NumberSequenceSource``, ``HybridSourceSplitSerializer``,
``PulsarPartitionSplitSerializer`` and ``PulsarApi.proto``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from statestore.formats.bytes.field_reader import varint_reader
from statestore.formats.flink.connectors.connector_form import Cells, ConnectorForm
from statestore.formats.flink.connectors.element_input import ElementInput
from statestore.formats.flink.connectors.file_forms import FILE_SPLIT
from statestore.formats.flink.connectors.kafka_forms import KAFKA_SPLIT, SOURCE_STATE

_MOST_RANGE = 65535
_TEXT, _INT, _LONG, _BYTES = pa.string(), pa.int32(), pa.int64(), pa.binary()


def _sequence_cells(source: ElementInput) -> Cells:
    split, first, last = source.utf("a split's id"), source.i64("a first number"), source.i64("a last number")
    if first > last + 1:  # one behind the last where all numbers were read
        raise source.error(f"found numbers from {first} to {last}, expected the first not behind the last")
    return split, first, last


def _sequence(source: ElementInput, version: int) -> Iterator[Cells]:
    yield _sequence_cells(source)


def _sequence_enumerator(source: ElementInput, version: int) -> Iterator[Cells]:
    for _ in source.entries(18, "splits"):
        yield _sequence_cells(source)


def _hybrid(wrapped: ConnectorForm | None, source: ElementInput, version: int) -> Iterator[Cells]:
    index = source.at_least(0, source.i32("a source's index"), "a source's index")
    split = source.utf("a split's id")
    if wrapped is None:
        inner = source.at_least(0, source.i32("a version"), "a version")
        yield index, split, inner, source.sized("a split")
        return
    for cells in wrapped.rows(source.rest(), source.path):
        yield index, split, *cells


def _hybrid_of(wrapped: ConnectorForm | None) -> ConnectorForm:
    inner = [("split_version", _INT), ("split", _BYTES)] if wrapped is None else list(wrapped.columns)
    names = [("source_index", _INT), ("hybrid_split_id", _TEXT)]
    return ConnectorForm(
        "hybrid_split" if wrapped is None else f"hybrid_{wrapped.name}",
        f"a split of a hybrid source{'' if wrapped is None else f', {wrapped.about}'}",
        pa.schema([*names, *inner]),
        partial(_hybrid, wrapped),
        range(1),
        (SOURCE_STATE,),
    )


def _hybrid_enumerator(source: ElementInput, version: int) -> Iterator[Cells]:
    index = source.at_least(0, source.i32("a source's index"), "a source's index")
    yield index, source.at_least(0, source.i32("a version"), "a version"), source.sized("an enumerator's state")


def _pulsar(source: ElementInput, version: int) -> Iterator[Cells]:
    topic, partition = source.utf("a topic"), source.at_least(-1, source.i32("a partition"), "a partition")
    ranges = [_topic_range(source)] if version == 0 else [_topic_range(source) for _ in source.entries(8, "ranges")]
    if version == 1:
        source.i32("a mode")
    source.java_object("a stop cursor")
    message: Cells = (None, None, None, None)
    if source.boolean("whether a message was consumed"):
        message = _message_id(source.inner(source.sized("a message's id")))
    transaction = None
    if source.boolean("whether there is a transaction"):
        transaction = f"({source.i64('a transaction')},{source.i64('a transaction')})"
    yield topic, None if partition < 0 else partition, ranges, *message, transaction


def _topic_range(source: ElementInput) -> dict[str, int]:
    start, end = source.i32("a range"), source.i32("a range")
    if not 0 <= start <= end <= _MOST_RANGE:
        raise source.error(f"found range {start} to {end}, expected one from 0 to {_MOST_RANGE}", source.at - 8)
    return {"start": start, "end": end}


def _message_id(source: ElementInput) -> Cells:
    """Ledger, entry, partition and place in a batch of a message, and all of its bytes.

    They are a message of Protobuf: fields 1 to 4 are such numbers, and others are left to the bytes.
    """
    read = varint_reader(lambda at: source.error("found a field without an end, expected one of Protobuf", at))
    found: dict[int, int] = {}
    while source.left:
        tag, source.at = read(source.data, source.at, source.stop)
        if tag & 7 == 0:
            found[tag >> 3], source.at = read(source.data, source.at, source.stop)
        elif tag & 7 == 2:
            size, source.at = read(source.data, source.at, source.stop)
            source.skip(size, "a field")
        else:
            raise source.error(f"found a field with tag {tag}, expected a number or bytes")
    if 1 not in found or 2 not in found:
        raise source.error("found no ledger and entry, expected a message's id")
    ledger, entry, batch = (_signed(found.get(number)) for number in (1, 2, 4))
    return ledger, entry, None if batch == -1 else batch, source.data


def _signed(number: int | None) -> int | None:
    return number if number is None or number < 1 << 63 else number - (1 << 64)


_SEQUENCE = pa.schema([("split_id", _TEXT), ("next_number", _LONG), ("last_number", _LONG)])
SEQUENCE_SPLIT = ConnectorForm(
    "sequence_split", "a split of a number sequence", _SEQUENCE, _sequence, range(1, 2), (SOURCE_STATE,)
)
SEQUENCE_ENUMERATOR = ConnectorForm(
    "sequence_enumerator",
    "the enumerator of a number sequence",
    _SEQUENCE,
    _sequence_enumerator,
    range(1, 2),
    many=True,
)
HYBRID_SPLIT = _hybrid_of(None)
"""A split of any source in a hybrid one, as bytes; it fits those of the next two forms, too."""
HYBRID_KAFKA, HYBRID_FILE = _hybrid_of(KAFKA_SPLIT), _hybrid_of(FILE_SPLIT)
HYBRID_ENUMERATOR = ConnectorForm(
    "hybrid_enumerator",
    "the enumerator of a hybrid source",
    pa.schema([("source_index", _INT), ("enumerator_version", _INT), ("enumerator", _BYTES)]),
    _hybrid_enumerator,
    range(1),
    many=True,
)
PULSAR_SPLIT = ConnectorForm(
    "pulsar_split",
    "a split of the Pulsar source",
    pa.schema(
        [
            ("topic", _TEXT),
            ("partition", _INT),
            ("ranges", pa.list_(pa.struct([("start", _INT), ("end", _INT)]))),
            ("ledger_id", _LONG),
            ("entry_id", _LONG),
            ("batch_index", _LONG),
            ("message_id", _BYTES),
            ("transaction", _TEXT),
        ]
    ),
    _pulsar,
    range(3),
    (SOURCE_STATE,),
)
