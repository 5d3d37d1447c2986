"""The forms of Kafka's connector: splits and the enumerator of its source, writers and committables of its sink.

Source: ``KafkaPartitionSplitSerializer``, ``KafkaSourceEnumStateSerializer``, ``KafkaWriterStateSerializer``,
``KafkaCommittableSerializer``, and ``FlinkKafkaConsumerBase``, the consumer of before Flink 2.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from statestore.formats.flink.connectors.connector_form import Cells, ConnectorForm
from statestore.formats.flink.connectors.element_input import ElementInput

SOURCE_STATE = "SourceReaderState"
WRITER_STATE = "writer_raw_states"
LEGACY_STATE = "topic-partition-offset-states"
TOPIC_PARTITION = "org.apache.flink.streaming.connectors.kafka.internals.KafkaTopicPartition"

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MAGIC_STARTS = {-1: "latest", -2: "earliest", -3: "committed"}
_NO_STOP = -(1 << 63)
_MAGIC_STOPS = {_NO_STOP: "none", -1: "latest", -3: "committed"}
_LEGACY_STARTS = {
    -915623761776: "not_set",
    -915623761775: "earliest",
    -915623761774: "latest",
    -915623761773: "committed",
}
"""Source: ``KafkaTopicPartitionStateSentinel``."""
_NEW = 1  # Kryo's mark of an object that was not written before
_NOTHING_PROCESSED = -1  # the offset before that of the first record
_ASSIGNMENTS, _SPLIT_ASSIGNMENTS = ("assigned", "unassigned_initial"), ("assigned", "unassigned")
_BY_SUBTASK, _WITH_SPLITS, _RETAINED = 0, 3, 2
"""Versions of enumerators with splits by subtask, and with splits; that of dynamic splits which may be retained."""
_OWNERSHIPS = ("implicit_by_subtask_id", "explicit_by_writer_state")

_TEXT, _INT, _LONG = pa.string(), pa.int32(), pa.int64()


def topic_of(source: ElementInput) -> str:
    """Read a topic's name, which Kafka allows letters, digits, ``.``, ``_`` and ``-`` in."""
    start, topic = source.at, source.utf("a topic")
    if _TOPIC.fullmatch(topic) is None:
        raise source.error(f"found topic {topic[:80]!r}, expected 1 to 249 letters, digits, '.', '_' and '-'", start)
    return topic


def _partition(source: ElementInput) -> int:
    return source.at_least(0, source.i32("a partition"), "a partition")


def _offset(source: ElementInput, number: int, words: dict[int, str]) -> tuple[int | None, str]:
    """An offset, or null where the number stands for a place that the reader has not looked up yet."""
    if number >= 0:
        return number, "offset"
    if number not in words:
        raise source.error(f"found offset {number}, expected 0 or more, or one of {', '.join(map(str, words))}")
    return None, words[number]


def _split_cells(source: ElementInput) -> Cells:
    topic, partition = topic_of(source), _partition(source)
    start = _offset(source, source.i64("a starting offset"), _MAGIC_STARTS)
    stop = _offset(source, source.i64("a stopping offset"), _MAGIC_STOPS)
    return topic, partition, *start, *stop


def _split(source: ElementInput, version: int) -> Iterator[Cells]:
    yield _split_cells(source)


def _dynamic_split(source: ElementInput, version: int) -> Iterator[Cells]:
    """A split of a source that finds its clusters while it runs."""
    cluster, retained = source.utf("a cluster's id"), None
    if version >= _RETAINED and source.boolean("whether the split is retained"):
        retained = source.epoch_millis("a time")
    _check_split_version(source)
    yield cluster, retained, *_split_cells(source)


def _check_split_version(source: ElementInput) -> None:
    version = source.i32("the version of splits")
    if version:
        raise source.error(f"found version {version} of splits, expected 0", source.at - 4)


def _sized_split(source: ElementInput) -> Cells:
    content = source.inner(source.sized("a split"))
    cells = _split_cells(content)
    content.end()
    return cells


def _enumerator(source: ElementInput, version: int) -> Iterator[Cells]:
    """Partitions with their assignment; versions 0 and 3 have their splits, as they were given to the readers."""
    found: list[Cells] = []
    if version == _BY_SUBTASK:
        subtasks = source.entries(8, "subtasks")
        _check_split_version(source)
        for _ in subtasks:
            source.at_least(0, source.i32("a subtask"), "a subtask")
            found += [(*_sized_split(source), _ASSIGNMENTS[0]) for _ in source.entries(4, "splits")]
    elif version == _WITH_SPLITS:
        splits = source.entries(8, "splits")
        _check_split_version(source)
        found += [(*_sized_split(source), _assignment(source, _SPLIT_ASSIGNMENTS)) for _ in splits]
    else:
        for _ in source.entries(7 if version == 1 else 11, "partitions"):
            place = topic_of(source), _partition(source)
            word = _ASSIGNMENTS[0] if version == 1 else _assignment(source, _ASSIGNMENTS)
            found.append((*place, None, None, None, None, word))
    discovered = version < 2 or source.boolean("whether the first discovery has finished")
    for cells in found or [(None,) * (len(_SPLIT) + 1)]:
        yield *cells, discovered


def _assignment(source: ElementInput, words: tuple[str, ...]) -> str:
    status = source.i32("an assignment")
    if not 0 <= status < len(words):
        raise source.error(f"found assignment {status}, expected 0 or 1", source.at - 4)
    return words[status]


def _writer(source: ElementInput, version: int) -> Iterator[Cells]:
    prefix = source.utf("a prefix of transactional ids")
    if version == 1:
        yield prefix, None, None, None, None
        return
    subtask, subtasks = source.i32("an owned subtask"), source.i32("the number of owned subtasks")
    ownership = source.i32("the ownership of transactions")
    if not 0 <= ownership < len(_OWNERSHIPS):
        raise source.error(f"found ownership {ownership}, expected 0 or 1", source.at - 4)
    ids = [
        {"transactional_id": source.utf("a transactional id"), "checkpoint_id": source.i64("a checkpoint id")}
        for _ in source.entries(10, "transactional ids")
    ]
    yield prefix, subtask, subtasks, _OWNERSHIPS[ownership], ids


def kafka_committable(source: ElementInput, version: int) -> Cells:
    """Read a transaction that is to be committed."""
    epoch, producer = source.i16("a producer's epoch"), source.i64("a producer's id")
    return source.utf("a transactional id"), producer, epoch


def _legacy(source: ElementInput, version: int) -> Iterator[Cells]:
    """A tuple of a partition, as Kryo writes it, and an offset.

    Kryo writes the number of the class, a mark of a new object, and the fields by their names: the cached hash code,
    the partition and the topic, which has a mark, too. The hash code follows from the others, so it tells that the
    fields are these.
    """
    number = _varint(source)
    if source.u8("Kryo's mark of an object") != _NEW or number < 2:
        raise source.error("found no object of a registered class, expected a partition")
    start = source.at
    hash_code, partition = _zigzag(_varint(source)), _zigzag(_varint(source))
    topic = _kryo_text(source)
    if _TOPIC.fullmatch(topic) is None or partition < 0:
        raise source.error(f"found partition {partition} of topic {topic[:80]!r}, expected those of Kafka", start)
    expected = (31 * _java_hash(topic) + partition) & 0xFFFFFFFF
    if hash_code & 0xFFFFFFFF != expected:
        raise source.error("found a hash code that is not that of the partition and the topic", start)
    offset = source.i64("an offset")
    processed = (offset, "offset") if offset == _NOTHING_PROCESSED else _offset(source, offset, _LEGACY_STARTS)
    yield topic, partition, *processed


def _varint(source: ElementInput) -> int:
    number = 0
    for shift in range(0, 35, 7):
        octet = source.u8("a number of Kryo")
        number |= (octet & 0x7F) << shift
        if octet < 0x80:
            return number & 0xFFFFFFFF
    raise source.error("found a number of Kryo in more than 5 bytes")


def _zigzag(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def _kryo_text(source: ElementInput) -> str:
    """Read an ASCII text of Kryo.

    Of 2 to 63 characters it is its bytes, with the highest bit of the last one set. Another has its length plus one in
    front of it: six bits, the highest bit set and the next one where seven more bits follow.
    """
    if source.u8("Kryo's mark of an object") != _NEW:
        raise source.error("found a mark of an object that was written before, expected a text", source.at - 1)
    first = source.u8("a text")
    if not first & 0x80:
        found = bytearray([first])
        while not found[-1] & 0x80:
            found.append(source.u8("a text"))
        found[-1] &= 0x7F
        return found.decode("ascii")
    length = first & 0x3F
    if first & 0x40:
        length |= source.u8("a length") << 6
    stored = source.take(length - 1, "a text")
    if not stored.isascii():
        raise source.error("found a text that is not ASCII", source.at - len(stored))
    return stored.decode("ascii")


def _java_hash(text: str) -> int:
    found = 0
    for each in text:
        found = (31 * found + ord(each)) & 0xFFFFFFFF
    return found


_SPLIT: list[tuple[str, pa.DataType]] = [
    ("topic", _TEXT),
    ("partition", _INT),
    ("offset", _LONG),
    ("offset_from", _TEXT),
    ("stop_offset", _LONG),
    ("stop_at", _TEXT),
]
KAFKA_SPLIT = ConnectorForm(
    "kafka_split", "a split of the Kafka source", pa.schema(_SPLIT), _split, range(1), (SOURCE_STATE,)
)
DYNAMIC_KAFKA_SPLIT = ConnectorForm(
    "dynamic_kafka_split",
    "a split of the dynamic Kafka source",
    pa.schema([("cluster", _TEXT), ("retained_until", pa.timestamp("us", "UTC")), *_SPLIT]),
    _dynamic_split,
    range(1, 3),
    (SOURCE_STATE,),
)
KAFKA_WRITER = ConnectorForm(
    "kafka_writer",
    "a writer of the Kafka sink",
    pa.schema(
        [
            ("transactional_id_prefix", _TEXT),
            ("owned_subtask", _INT),
            ("owned_subtasks", _INT),
            ("ownership", _TEXT),
            ("precommitted", pa.list_(pa.struct([("transactional_id", _TEXT), ("checkpoint_id", _LONG)]))),
        ]
    ),
    _writer,
    range(1, 3),
    (WRITER_STATE,),
)
KAFKA_LEGACY = ConnectorForm(
    "kafka_consumer",
    "a partition of the Kafka consumer of before Flink 2.0",
    pa.schema([("topic", _TEXT), ("partition", _INT), ("processed_offset", _LONG), ("offset_from", _TEXT)]),
    _legacy,
    range(1),
    (LEGACY_STATE,),
    framed=False,
)
KAFKA_ENUMERATOR = ConnectorForm(
    "kafka_enumerator",
    "the enumerator of the Kafka source",
    pa.schema([*_SPLIT, ("assignment", _TEXT), ("initial_discovery_finished", pa.bool_())]),
    _enumerator,
    range(4),
    many=True,
)
COMMITTABLE_COLUMNS = [("transactional_id", _TEXT), ("producer_id", _LONG), ("epoch", pa.int16())]
