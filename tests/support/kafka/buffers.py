"""Values of the changelogs of suppression and grace-period buffers (``BufferValue``, ``ProcessorRecordContext``).

    version 3       context | prior | old | new | buffer time:int64      old of length -2: the same as prior
    version 2       context | (length:int32 | change) | prior | buffer time
    version 1       buffer time | context | (length:int32 | change)
    version 0       buffer time | change                                 the context is the record's own
    context         timestamp:int64 | offset:int64 | topic | partition:int32 | headers:int32 | (key | value)*
    change          old | new

Topics, keys and values are ``length:int32 | bytes``, length -1 for null. The record header ``v`` holds the version;
without it the version is 0. Releases 2.4.0, 2.4.1 and 2.5.0 wrote version 3 as 2. A record without a value removes
its key from the buffer. Times are epoch milliseconds. Decoders raise CorruptError KAFKA_BYTES.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from statestore.formats.bytes.field_reader import NULL
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, UnsupportedError
from statestore.formats.kafka_rows.byte_reader import INT64, Reader, int32, sized
from support.kafka.store_rows import Header

SAME_AS_PRIOR = -2
CURRENT_VERSION = 3


@dataclass(frozen=True)
class RecordContext:
    """The origin of a buffered record."""

    timestamp: int
    offset: int
    topic: str
    partition: int
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True)
class Buffered:
    """A buffered change. ``context`` is None in version 0, ``buffer_time`` where the value comes from a store.

    ``prior`` is the value before buffering began. Versions 0 and 1 do not hold it, and ``prior`` is ``old`` there,
    which is right for the first change of a key since it was last emitted.
    """

    context: RecordContext | None
    prior: bytes | None
    old: bytes | None
    new: bytes | None
    buffer_time: int | None


def version_of_header(value: bytes | None) -> int:
    """The version in the record header ``v``, 0 without the header."""
    if value is None:
        return 0
    if len(value) != 1 or value[0] > CURRENT_VERSION:
        raise UnsupportedError(
            ErrorCode.BUFFER_VERSION,
            f"header v of a buffer's changelog: found {value[:8].hex()}, expected 01, 02 or 03",
        )
    return value[0]


def encode_buffered(buffered: Buffered, version: int = CURRENT_VERSION) -> bytes:
    """Encode a changelog value, or without a buffer time the value in the store of a grace-period buffer.

    Raises InvalidInputError BUFFER_CONTEXT if the context is missing in a version other than 0.
    """
    time = b"" if buffered.buffer_time is None else INT64.pack(buffered.buffer_time)
    change = sized(buffered.old) + sized(buffered.new)
    if version == 0:
        return time + change
    if buffered.context is None:
        raise InvalidInputError(
            ErrorCode.BUFFER_CONTEXT, f"a buffer value of version {version}: found no record context"
        )
    context = encode_context(buffered.context)
    if version == 1:
        return time + context + sized(change)
    if version == 2:
        return context + sized(change) + sized(buffered.prior) + time
    same = buffered.old is not None and buffered.old == buffered.prior
    old = int32(SAME_AS_PRIOR) if same else sized(buffered.old)
    return context + sized(buffered.prior) + old + sized(buffered.new) + time


def decode_buffered(data: bytes, version: int = CURRENT_VERSION) -> Buffered:
    """Decode the changelog value of a suppression buffer, by the version in its header."""
    if version == 2:
        try:
            return _whole(data, 2)
        except CorruptError:
            return _whole(data, 3)
    return _whole(data, version)


def decode_grace_buffered(data: bytes) -> Buffered:
    """Decode a value of the buffer of a stream-table join with grace period: version 3 without a buffer time.

    A value in the store ends there. In the changelog a buffer time follows, which is always 0.
    """
    reader = Reader("grace buffer value", data)
    buffered = _version_3(reader)
    if reader.left == INT64.size:
        reader.i64("buffer time")
    reader.end()
    return buffered


def encode_context(context: RecordContext) -> bytes:
    parts = [
        INT64.pack(context.timestamp),
        INT64.pack(context.offset),
        sized(context.topic.encode()),
        int32(context.partition),
    ]
    parts.append(int32(len(context.headers)))
    for key, value in context.headers:
        parts += (sized(key.encode()), sized(value))
    return b"".join(parts)


def read_context(reader: Reader) -> RecordContext:
    timestamp, offset = reader.i64("timestamp"), reader.i64("offset")
    topic = reader.text(reader.sized("topic"), "topic")
    partition, number = reader.i32("partition"), reader.i32("header count")
    if number == NULL:  # early releases wrote null for no headers
        number = 0
    reader.count(number, 8, "headers")
    headers = tuple(
        (reader.text(reader.sized("header key"), "header key"), reader.nullable("header value")) for _ in range(number)
    )
    return RecordContext(timestamp, offset, topic, partition, headers)


def _whole(data: bytes, version: int) -> Buffered:
    decode = _DECODERS.get(version)
    if decode is None:
        raise UnsupportedError(
            ErrorCode.BUFFER_VERSION, f"buffer value of version {version}; expected 0 to {CURRENT_VERSION}"
        )
    reader = Reader(f"buffer value of version {version}", data)
    decoded = decode(reader)
    reader.end()
    return decoded


def _version_0(reader: Reader) -> Buffered:
    time = reader.i64("buffer time")
    old, new = _change(reader)
    return Buffered(None, old, old, new, time)


def _version_1(reader: Reader) -> Buffered:
    time = reader.i64("buffer time")
    context = read_context(reader)
    old, new = _sized_change(reader)
    return Buffered(context, old, old, new, time)


def _version_2(reader: Reader) -> Buffered:
    context = read_context(reader)
    old, new = _sized_change(reader)
    return Buffered(context, reader.nullable("prior"), old, new, reader.i64("buffer time"))


def _version_3(reader: Reader) -> Buffered:
    context, prior = read_context(reader), reader.nullable("prior")
    length = reader.i32("old")
    old = prior if length == SAME_AS_PRIOR else None if length == NULL else reader.take(length, "old")
    return Buffered(context, prior, old, reader.nullable("new"), None)


def _version_3_with_time(reader: Reader) -> Buffered:
    buffered = _version_3(reader)
    return Buffered(buffered.context, buffered.prior, buffered.old, buffered.new, reader.i64("buffer time"))


def _sized_change(reader: Reader) -> tuple[bytes | None, bytes | None]:
    inner = Reader(reader.what, reader.sized("change"))
    change = _change(inner)
    inner.end()
    return change


def _change(reader: Reader) -> tuple[bytes | None, bytes | None]:
    return reader.nullable("old"), reader.nullable("new")


_DECODERS: dict[int, Callable[[Reader], Buffered]] = {
    0: _version_0,
    1: _version_1,
    2: _version_2,
    3: _version_3_with_time,
}
