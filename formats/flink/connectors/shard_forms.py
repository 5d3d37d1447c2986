"""The forms of the sources of Kinesis and of DynamoDB's streams: shards with their positions, and enumerators.

Source: ``KinesisShardSplitSerializer``, ``KinesisStreamsSourceEnumeratorStateSerializer``,
``DynamoDbStreamsShardSplitSerializer``, ``DynamoDbStreamsSourceEnumeratorStateSerializer``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pyarrow as pa

from statestore.formats.flink.connectors.connector_form import Cells, ConnectorForm
from statestore.formats.flink.connectors.element_input import ElementInput
from statestore.formats.flink.connectors.kafka_forms import SOURCE_STATE

_KINESIS, _DYNAMODB = re.compile(r"arn:[^:]*:kinesis:.+"), re.compile(r"arn:[^:]*:dynamodb:.+")
_BY_SEQUENCE = frozenset({"AFTER_SEQUENCE_NUMBER", "AT_SEQUENCE_NUMBER"})
_BY_TIME = "AT_TIMESTAMP"
_POSITIONS = frozenset({*_BY_SEQUENCE, _BY_TIME, "TRIM_HORIZON", "LATEST"})
_ASSIGNMENTS = ("assigned", "unassigned")
_DYNAMODB_ASSIGNMENTS = (*_ASSIGNMENTS, "finished")
_LEAST_SPLIT = 4  # a version or length before each split of an enumerator
_TEXT = pa.string()
_TIME = pa.timestamp("us", "UTC")
ReadSplit = Callable[[ElementInput, int], Cells]


def _shard(source: ElementInput, stream: re.Pattern[str]) -> Cells:
    """The stream's ARN, the shard's id and the word for where to start."""
    start, arn = source.at, source.utf("a stream's ARN")
    if stream.fullmatch(arn) is None:
        raise source.error(f"found stream {arn[:80]!r}, expected an ARN like {stream.pattern}", start)
    shard, start, word = source.utf("a shard's id"), source.at, source.utf("a starting position")
    if word not in _POSITIONS:
        raise source.error(f"found position {word[:80]!r}, expected {', '.join(sorted(_POSITIONS))}", start)
    return arn, shard, word


def _check_marker(source: ElementInput, word: str, time: int | None, sequence: str | None) -> None:
    """Raise where a position by a sequence number or a time lacks it, or another one has one."""
    expected = (word in _BY_SEQUENCE, word == _BY_TIME)
    if (sequence is not None, time is not None) != expected:
        raise source.error(f"found sequence number {sequence} and time {time}, which do not fit position {word}")


def _kinesis_cells(source: ElementInput, version: int) -> Cells:
    arn, shard, word = _shard(source, _KINESIS)
    time = sequence = None
    if source.boolean("whether there is a marker"):
        if source.boolean("whether it is a time"):
            time = source.epoch_millis("a starting time")
        if source.boolean("whether it is a sequence number"):
            sequence = source.utf("a sequence number")
    _check_marker(source, word, time, sequence)
    parents: list[str] | None = None
    hashes: Cells = (None, None)
    if version >= 1:
        parents = [source.utf("a parent shard") for _ in source.entries(2, "parent shards")]
        hashes = (source.utf("a hash key"), source.utf("a hash key"))
    finished = source.boolean("whether the shard is finished") if version >= 2 else None
    return arn, shard, word.lower(), sequence, time, parents, *hashes, finished


def _dynamodb_cells(source: ElementInput, version: int) -> Cells:
    arn, shard, word = _shard(source, _DYNAMODB)
    sequence = parent = None
    if source.boolean("whether there is a marker") and source.boolean("whether it is a sequence number"):
        sequence = source.utf("a sequence number")
    _check_marker(source, word, None, sequence)
    if source.boolean("whether there is a parent shard"):
        parent = source.utf("a parent shard")
    finished = source.boolean("whether the shard is finished") if version >= 1 else None
    children = [_child(source) for _ in source.entries(7, "child shards")] if version >= 2 else None
    return arn, shard, word.lower(), sequence, parent, finished, children


def _child(source: ElementInput) -> dict[str, str | None]:
    shard, parent, first = (source.utf(each) for each in ("a child shard", "its parent", "a sequence number"))
    last = source.utf("a sequence number") if source.boolean("whether there is an ending one") else None
    return {"shard_id": shard, "parent_shard": parent, "first_sequence_number": first, "last_sequence_number": last}


def _splits(source: ElementInput, read: ReadSplit, words: tuple[str, ...] | None) -> list[Cells]:
    """The splits of an enumerator, each with its assignment; without ``words`` none is assigned."""
    count = source.entries(_LEAST_SPLIT, "splits")
    version = source.i32("the version of splits")
    if not 0 <= version < SPLIT_VERSIONS.stop:
        raise source.error(f"found version {version} of splits, expected 0 to {SPLIT_VERSIONS.stop - 1}", source.at - 4)
    found = []
    for _ in count:
        split = source.inner(source.sized("a split"))
        cells = read(split, version)
        split.end()
        status = _ASSIGNMENTS.index("unassigned") if words is None else source.i32("an assignment")
        known = _ASSIGNMENTS if words is None else words
        if not 0 <= status < len(known):
            raise source.error(f"found assignment {status}, expected 0 to {len(known) - 1}", source.at - 4)
        found.append((*cells, known[status]))
    return found


def _kinesis_split(source: ElementInput, version: int) -> Iterator[Cells]:
    yield _kinesis_cells(source, version)


def _dynamodb_split(source: ElementInput, version: int) -> Iterator[Cells]:
    yield _dynamodb_cells(source, version)


def _kinesis_enumerator(source: ElementInput, version: int) -> Iterator[Cells]:
    last = source.utf("a shard's id") if source.boolean("whether there is a last shard") else None
    for cells in _splits(source, _kinesis_cells, _ASSIGNMENTS if version else None) or [(None,) * (len(_SHARD) + 1)]:
        yield *cells, last


def _dynamodb_enumerator(source: ElementInput, version: int) -> Iterator[Cells]:
    found = _splits(source, _dynamodb_cells, _DYNAMODB_ASSIGNMENTS)
    start = source.epoch_millis("a starting time")
    for cells in found or [(None,) * (len(_STREAM_SHARD) + 1)]:
        yield *cells, start


SPLIT_VERSIONS = range(3)
_PLACE: list[tuple[str, pa.DataType]] = [
    ("stream_arn", _TEXT),
    ("shard_id", _TEXT),
    ("position_from", _TEXT),
    ("sequence_number", _TEXT),
]
_SHARD: list[tuple[str, pa.DataType]] = [
    *_PLACE,
    ("start_time", _TIME),
    ("parent_shards", pa.list_(_TEXT)),
    ("first_hash_key", _TEXT),
    ("last_hash_key", _TEXT),
    ("finished", pa.bool_()),
]
_CHILD = pa.struct(
    [(each, _TEXT) for each in ("shard_id", "parent_shard", "first_sequence_number", "last_sequence_number")]
)
_STREAM_SHARD: list[tuple[str, pa.DataType]] = [
    *_PLACE,
    ("parent_shard", _TEXT),
    ("finished", pa.bool_()),
    ("child_shards", pa.list_(_CHILD)),
]
KINESIS_SPLIT = ConnectorForm(
    "kinesis_split",
    "a shard of the Kinesis source",
    pa.schema(_SHARD),
    _kinesis_split,
    SPLIT_VERSIONS,
    (SOURCE_STATE,),
)
KINESIS_ENUMERATOR = ConnectorForm(
    "kinesis_enumerator",
    "the enumerator of the Kinesis source",
    pa.schema([*_SHARD, ("assignment", _TEXT), ("last_seen_shard", _TEXT)]),
    _kinesis_enumerator,
    range(2),
    many=True,
)
DYNAMODB_SPLIT = ConnectorForm(
    "dynamodb_split",
    "a shard of the source of DynamoDB's streams",
    pa.schema(_STREAM_SHARD),
    _dynamodb_split,
    SPLIT_VERSIONS,
    (SOURCE_STATE,),
)
DYNAMODB_ENUMERATOR = ConnectorForm(
    "dynamodb_enumerator",
    "the enumerator of the source of DynamoDB's streams",
    pa.schema([*_STREAM_SHARD, ("assignment", _TEXT), ("started", _TIME)]),
    _dynamodb_enumerator,
    range(1),
    many=True,
)
