"""Keys and values of Kafka Streams' stores: round trips, columns, and bytes that are not such rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.kafka import buffers, joins
from support.kafka.buffers import Buffered, RecordContext
from support.kafka.changelog_records import logged_value, restored_value, user_headers
from support.kafka.joins import Subscription
from support.properties import few_or_many

from statestore.formats.errors import CorruptError, InvalidInputError, UnsupportedError
from statestore.formats.kafka.directory import stored_offsets
from statestore.formats.kafka_rows import session_keys, timestamped, window_keys
from statestore.formats.kafka_rows.timestamped import Header

KEYS = st.binary(max_size=5)
TIMES = st.integers(-(2**63), 2**63 - 1)
SEQUENCES = st.integers(0, 2**31 - 1)
HEADERS: st.SearchStrategy[list[Header]] = st.lists(
    st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=70)), max_size=3
)
OPTIONAL = st.none() | st.binary(max_size=4)


# Keys


@given(key=KEYS, start=TIMES, sequence=SEQUENCES)
def test_window_keys_come_back(key: bytes, start: int, sequence: int) -> None:
    row = (key, start, sequence)
    assert window_keys.decode_store_key(window_keys.encode_store_key(*row)) == row
    assert window_keys.decode_time_first_key(window_keys.encode_time_first_key(*row)) == row
    assert window_keys.decode_key_first_key(window_keys.encode_key_first_key(*row)) == row
    assert window_keys.decode_topic_key(window_keys.encode_topic_key(key, start)) == (key, start)


@given(key=KEYS, bounds=st.tuples(TIMES, TIMES).map(sorted))
def test_session_keys_come_back(key: bytes, bounds: list[int]) -> None:
    row = (key, bounds[0], bounds[1])
    assert session_keys.decode_session_key(session_keys.encode_session_key(*row)) == row
    assert session_keys.decode_time_first_session_key(session_keys.encode_time_first_session_key(*row)) == row
    assert session_keys.decode_key_first_session_key(session_keys.encode_key_first_session_key(*row)) == row


def test_sequence_numbers_begin_again() -> None:
    assert window_keys.next_sequence(0) == 1
    assert window_keys.next_sequence(2**31 - 1) == 0


def test_windows_end_at_the_last_moment() -> None:
    assert window_keys.window_end(5, 10) == 15
    assert window_keys.window_end(2**63 - 5, 10) == 2**63 - 1


# Values


@given(value=KEYS, timestamp=TIMES, found=HEADERS)
def test_values_come_back(value: bytes, timestamp: int, found: list[Header]) -> None:
    assert timestamped.decode_headers(timestamped.encode_headers(found)) == found
    data = timestamped.encode_timestamped_headers(value, timestamp, found)
    assert timestamped.decode_timestamped_headers(data) == (found, timestamp, value)
    assert timestamped.decode_with_headers(timestamped.encode_with_headers(value, found)) == (found, value)
    assert timestamped.decode_timestamped(timestamped.encode_timestamped(value, timestamp)) == (timestamp, value)


def test_rows_of_older_column_families_are_upgraded() -> None:
    old = timestamped.plain_to_timestamped(b"v")
    assert timestamped.decode_timestamped(old) == (timestamped.UNKNOWN, b"v")
    assert timestamped.timestamped_to_headers(old) == timestamped.plain_to_headers(b"v")
    assert timestamped.decode_timestamped_headers(timestamped.plain_to_headers(b"v")) == ([], timestamped.UNKNOWN, b"v")
    assert timestamped.decode_with_headers(timestamped.aggregation_to_headers(b"v")) == ([], b"v")


@given(number=st.integers(-(2**31), 2**31 - 1))
def test_varints_come_back(number: int) -> None:
    assert timestamped.decode_varint(timestamped.encode_varint(number)) == number


@given(value=OPTIONAL, timestamp=TIMES, found=HEADERS)
def test_changelogs_restore_what_was_logged(value: bytes | None, timestamp: int, found: list[Header]) -> None:
    kept = {"plain": (None, ()), "timestamped": (timestamp, ()), "session-headers": (None, tuple(found))}
    for form, (time, there) in {**kept, "timestamped-headers": (timestamp, tuple(found))}.items():
        stored = restored_value(form, value, timestamp, found)  # type: ignore[arg-type]
        expected = (value, time, there) if value is not None else (None, None, ())
        assert logged_value(form, stored) == expected  # type: ignore[arg-type]


def test_headers_for_consistency_are_not_the_users() -> None:
    mine = ("k", b"1")
    assert user_headers([mine, ("v", b"\x00"), ("c", b"\x00" * 5)]) == (mine,)
    assert user_headers([mine, ("c", b"x")]) == (mine, ("c", b"x"))


# Joins and buffers


@given(key=KEYS, timestamp=TIMES, left=st.booleans(), other=KEYS)
def test_join_rows_come_back(key: bytes, timestamp: int, left: bool, other: bytes) -> None:
    data = joins.encode_outer_join_key(key, timestamp, left)
    assert joins.decode_outer_join_key(data) == (timestamp, left, key)
    assert joins.decode_left_or_right(joins.encode_left_or_right(key, left)) == (left, key)
    assert joins.decode_subscription_key(joins.encode_subscription_key(other, key)) == (other, key)


@given(
    instruction=st.sampled_from(joins.INSTRUCTIONS),
    digest=st.none() | st.binary(min_size=16, max_size=16),
    key=KEYS,
    partition=st.none() | st.integers(0, 2**31 - 1),
)
def test_subscriptions_come_back(instruction: str, digest: bytes | None, key: bytes, partition: int | None) -> None:
    found = Subscription(0 if partition is None else 1, instruction, digest, key, partition)
    assert joins.decode_subscription(joins.encode_subscription(found)) == found


CONTEXTS = st.builds(RecordContext, TIMES, TIMES, st.text(max_size=4), st.integers(0, 9), HEADERS.map(tuple))


@given(context=CONTEXTS, prior=OPTIONAL, old=OPTIONAL, new=OPTIONAL, time=TIMES)
def test_buffers_come_back(
    context: RecordContext, prior: bytes | None, old: bytes | None, new: bytes | None, time: int
) -> None:
    """Versions 0 and 1 do not hold the prior value, version 0 no context."""
    full = Buffered(context, prior, old, new, time)
    assert buffers.decode_buffered(buffers.encode_buffered(full)) == full
    assert buffers.decode_buffered(buffers.encode_buffered(full, 2), 2) == full
    without_prior = Buffered(context, old, old, new, time)
    assert buffers.decode_buffered(buffers.encode_buffered(full, 1), 1) == without_prior
    assert buffers.decode_buffered(buffers.encode_buffered(full, 0), 0) == Buffered(None, old, old, new, time)


CONTEXT = RecordContext(1, 2, "t", 0, (("h", b"1"), ("n", None)))
CHANGE = Buffered(CONTEXT, b"p", b"o", b"n", 9)


def test_version_3_that_calls_itself_2_is_read() -> None:
    """Releases 2.4.0, 2.4.1 and 2.5.0 wrote version 3 in this way."""
    assert buffers.decode_buffered(buffers.encode_buffered(CHANGE, 3), 2) == CHANGE


def test_equal_old_and_prior_values_are_stored_once() -> None:
    once = buffers.encode_buffered(Buffered(CONTEXT, b"same", b"same", None, 9))
    assert once.count(b"same") == 1
    assert buffers.decode_buffered(once).old == b"same"


def test_grace_buffers_have_no_buffer_time_in_the_store_and_one_in_the_changelog() -> None:
    stored = buffers.encode_buffered(Buffered(CONTEXT, None, None, b"n", None))
    expected = Buffered(CONTEXT, None, None, b"n", None)
    assert buffers.decode_grace_buffered(stored) == expected
    assert buffers.decode_grace_buffered(stored + bytes(8)) == expected
    for bad in (stored[:-1], stored + b"x", stored + bytes(7), stored + bytes(9)):
        with pytest.raises(CorruptError, match="KAFKA_BYTES"):
            buffers.decode_grace_buffered(bad)


def test_a_header_count_of_minus_1_is_none() -> None:
    context = buffers.encode_context(RecordContext(1, 2, "t", 0))
    assert context.endswith(bytes(4))
    change = Buffered(RecordContext(1, 2, "t", 0), None, None, None, 9)
    early = context[:-4] + b"\xff\xff\xff\xff" + buffers.encode_buffered(change)[len(context) :]
    assert buffers.decode_buffered(early) == change


def test_versions_of_buffers() -> None:
    assert [buffers.version_of_header(value) for value in (None, b"\x01", b"\x02", b"\x03")] == [0, 1, 2, 3]
    for bad in (b"", b"\x04", b"\x00\x01"):
        with pytest.raises(UnsupportedError, match="BUFFER_VERSION"):
            buffers.version_of_header(bad)
    with pytest.raises(UnsupportedError, match="BUFFER_VERSION"):
        buffers.decode_buffered(b"", 4)
    with pytest.raises(InvalidInputError, match="BUFFER_CONTEXT"):
        buffers.encode_buffered(Buffered(None, None, None, None, 1))


# Positions


@given(
    position=st.dictionaries(
        st.text(max_size=4), st.dictionaries(st.integers(0, 9), st.integers(0, 2**63 - 1), max_size=3), max_size=3
    ),
    padded=st.booleans(),
)
def test_positions_come_back(position: dict[str, dict[int, int]], padded: bool) -> None:
    data = stored_offsets.encode_position(position, padded)
    assert stored_offsets.decode_position(data) == position
    for bad in (data + b"\x00", data[:-1], data + b"x"):
        with pytest.raises(CorruptError, match=r"KAFKA_BYTES.*position"):
            stored_offsets.decode_position(bad)


def test_stored_positions_are_padded_as_kafkas_buffer_is() -> None:
    """8 + 32, a topic 32 + its name + 32, an offset 32 + 64: bits where bytes are meant."""
    padded = stored_offsets.encode_position({"orders": {0: 41}}, padded=True)
    assert len(padded) == 40 + 32 + 6 + 32 + 96
    with pytest.raises(CorruptError, match="KAFKA_BYTES"):
        stored_offsets.decode_position(padded[:-1] + b"\x01")


def test_positions_of_segments_are_merged() -> None:
    positions: list[stored_offsets.Position] = [{"a": {0: 3, 1: 1}}, {"a": {0: 2}, "b": {0: 0}}]
    assert stored_offsets.merge_positions(positions) == {"a": {0: 3, 1: 1}, "b": {0: 0}}


def test_the_offsets_family_comes_back() -> None:
    """Topics may hold hyphens: the last one parts topic and partition."""
    found = stored_offsets.StoredOffsets(True, {"t": {0: 1}}, {("app-s-changelog", 3): 7})
    rows = stored_offsets.encode_offsets_family(found)
    assert rows[b"app-s-changelog-3"] == bytes(7) + b"\x07"
    assert stored_offsets.decode_offsets_family(rows) == found
    assert stored_offsets.decode_offsets_family({}).closed_cleanly is None
    for bad in ({b"status": bytes(7)}, {b"status": bytes(7) + b"\x02"}, {b"topic": bytes(8)}, {b"t-x": bytes(8)}):
        with pytest.raises(CorruptError, match="KAFKA_BYTES"):
            stored_offsets.decode_offsets_family(bad)


# Damage. Each form has an example of which every byte is needed.

REFUSED = r"KAFKA_BYTES.*found.*expected"

FULL_HEADERS: list[Header] = [("k", b"1"), ("n", None)]
FORMS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "window key": (window_keys.decode_store_key, bytes(12)),
    "topic key": (window_keys.decode_topic_key, bytes(8)),
    "time first": (window_keys.decode_time_first_key, bytes(13)),
    "key first": (window_keys.decode_key_first_key, b"\x01" + bytes(12)),
    "session key": (session_keys.decode_session_key, bytes(16)),
    "session time first": (session_keys.decode_time_first_session_key, bytes(17)),
    "session key first": (session_keys.decode_key_first_session_key, b"\x01" + bytes(16)),
    "timestamped": (timestamped.decode_timestamped, bytes(8)),
    "timestamped headers": (
        timestamped.decode_timestamped_headers,
        timestamped.encode_timestamped_headers(b"", 5, FULL_HEADERS),
    ),
    "aggregation": (timestamped.decode_with_headers, timestamped.encode_with_headers(b"", FULL_HEADERS)),
    "outer join key": (joins.decode_outer_join_key, bytes(9)),
    "left or right": (joins.decode_left_or_right, b"\x01"),
    "subscription key": (joins.decode_subscription_key, joins.encode_subscription_key(b"abc", b"")),
    "subscription": (
        joins.decode_subscription,
        joins.encode_subscription(Subscription(1, joins.INSTRUCTIONS[0], bytes(16), b"", 2)),
    ),
}
WHOLE_FORMS: dict[str, tuple[Callable[[bytes], object], bytes]] = {  # forms that mark their own end
    "headers": (timestamped.decode_headers, timestamped.encode_headers(FULL_HEADERS)),
    "varint": (timestamped.decode_varint, timestamped.encode_varint(2**31 - 1)),
    "buffer 3": (buffers.decode_buffered, buffers.encode_buffered(CHANGE)),
    "buffer 2": (lambda data: buffers.decode_buffered(data, 2), buffers.encode_buffered(CHANGE, 2)),
    "buffer 1": (lambda data: buffers.decode_buffered(data, 1), buffers.encode_buffered(CHANGE, 1)),
    "buffer 0": (lambda data: buffers.decode_buffered(data, 0), buffers.encode_buffered(CHANGE, 0)),
    "position": (stored_offsets.decode_position, stored_offsets.encode_position({"t": {0: 1}})),
}
FORMS |= WHOLE_FORMS


@pytest.mark.parametrize("form", FORMS)
def test_bytes_that_are_cut_off_are_refused(form: str) -> None:
    decode, data = FORMS[form]
    decode(data)
    for size in range(form == "headers", len(data)):  # no bytes are no headers
        with pytest.raises(CorruptError, match=REFUSED):
            decode(data[:size])


@pytest.mark.parametrize("form", WHOLE_FORMS)
def test_bytes_behind_the_end_are_refused(form: str) -> None:
    decode, data = FORMS[form]
    with pytest.raises(CorruptError, match=REFUSED):
        decode(data + b"\x00")


@pytest.mark.parametrize(
    ("form", "data"),
    [
        ("time first", "01" + "00" * 12),
        ("key first", "00" * 13),
        ("session time first", "02" + "00" * 16),
        ("session key", "0000000000000001" + "0000000000000002"),
        ("varint", "808080808000"),  # six bytes
        ("varint", "ffffffff1f"),  # 33 bits
        ("headers", "01"),  # count -1
        ("headers", "fcffffff0f"),  # count 2^31 - 2
        ("headers", "02016b0201"),  # key of length -1
        ("headers", "02026b0301"),  # value of length -2
        ("headers", "0202ff0201"),  # key not UTF-8
        ("timestamped headers", "01" + "00" * 8),  # headers of length -1
        ("timestamped headers", "14026b" + "00" * 8),  # headers longer than the value
        ("outer join key", "00" * 8 + "02"),
        ("left or right", "02"),
        ("subscription key", "ffffffff61"),
        ("subscription key", "7fffffff61"),
        ("subscription", "8200"),  # version 2
        ("subscription", "8004"),  # instruction 4
        ("subscription", "8100000000"),  # no room for the partition
        ("buffer 0", "00" * 8 + "fffffffe" + "ffffffff"),
        ("position", "0100000000"),  # version
        ("position", "00ffffffff"),
        ("position", "007fffffff"),
        ("position", "0000000001ffffffff"),
        ("position", "0000000001000000017400000001" + "00" * 11),
        ("position", "000000000100000001ff00000000"),
    ],
)
def test_wrong_fields_are_refused(form: str, data: str) -> None:
    with pytest.raises(CorruptError, match=REFUSED):
        FORMS[form][0](bytes.fromhex(data))


@pytest.mark.parametrize("form", FORMS)
@few_or_many(25, 100, data=st.binary(max_size=60), front=st.integers(0, 70))
@example(data=b"\xff" * 60, front=0)
def test_any_bytes_are_read_or_refused(form: str, data: bytes, front: int) -> None:
    """Random ones, also behind the beginning of a good example: no other error, and none of them takes long."""
    decode, good = FORMS[form]
    try:
        decode(good[:front] + data)
    except CorruptError as error:
        assert error.code == "KAFKA_BYTES"
