"""Bytes that are not rows of a store: one clear error about the first of them, whatever the bytes are."""

from __future__ import annotations

import contextlib
from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.kafka import buffers
from support.kafka.buffers import Buffered, RecordContext
from support.kafka.real_applications import APPLICATIONS, application, form_of, raw_columns
from support.kafka.store_rows import (
    INSTRUCTIONS,
    Subscription,
    encode_list,
    encode_outer_join_key,
    encode_session_key,
    encode_store_key,
    encode_subscription,
    encode_subscription_key,
    encode_time_first_key,
    encode_timestamped,
    encode_timestamped_headers,
)
from support.parameters import named
from support.properties import few_or_many

from statestore.formats.errors import CorruptError, InvalidInputError, UnsupportedError
from statestore.formats.kafka.columns.header_columns import HEADERS
from statestore.formats.kafka.columns.store_kinds import KINDS, StoreForm, logged_rows, row_schema, stored_rows
from statestore.formats.kafka.columns.time_columns import MOST_MS

CHANGE = Buffered(RecordContext(1, 2, "topic", 0, (("h", b"1"),)), b"p", b"p", b"n", 5)
SUBSCRIPTION = encode_subscription(Subscription(1, INSTRUCTIONS[0], bytes(16), b"k", 2))
SIDED = encode_outer_join_key(b"k", 5, True)


def row(form: StoreForm, family: str, *rows: tuple[bytes, bytes]) -> pa.RecordBatch:
    return stored_rows(form, family, *raw_columns(list(rows)))


@pytest.mark.parametrize(
    ("form", "family", "key", "value", "problem"),
    [
        (StoreForm("key-value", "long"), "default", "61", "00", r"key .* found 61 \(1 byte\), expected a Long"),
        (
            StoreForm("key-value", "string", "long"),
            "default",
            "61",
            "00ff",
            r"value .* 00ff .* a Long.* another serde",
        ),
        (StoreForm("timestamped-key-value"), "keyValueWithTimestamp", "61", "00" * 7, "a timestamp of 8 bytes"),
        (
            StoreForm("timestamped-key-value"),
            "keyValueWithTimestamp",
            "61",
            "70" * 8,
            r"found \d{19}, .*kind",
        ),
        (StoreForm("headers-key-value"), "keyValueWithTimestampAndHeaders", "61", "02", "headers with their size"),
        (StoreForm("headers-key-value"), "keyValueWithTimestampAndHeaders", "61", "0204" + "00" * 9, "record headers"),
        (StoreForm("headers-session"), "sessionKeyValueWithHeaders", "00" * 16, "01", "headers with their size"),
        (StoreForm("window"), "default", "00" * 11, "", "window key of at least 12"),
        (StoreForm("window"), "default", "00" * 11 + "05", "", r"sequence number 5, expected 0; .* with duplicates"),
        (StoreForm("window"), "default", "7f" + "ff" * 7 + "00" * 4, "", "window start .*9223372036854775807.*kind"),
        (StoreForm("time-ordered-window"), "default", "00" * 12, "", "time-ordered window key of at least 13"),
        (StoreForm("time-ordered-window"), "default", "02" + "00" * 12, "", "begins with 00 or 01"),
        (StoreForm("session"), "default", "00" * 15, "", "session key of at least 16"),
        (StoreForm("session"), "default", "00" * 15 + "01", "", "end is not before its start"),
        (StoreForm("time-ordered-session"), "default", "00" * 16 + "01", "", "end is not before its start"),
        (StoreForm("time-ordered-session"), "default", "05" * 17, "", "begins with 00 or 01"),
        (StoreForm("outer-join-buffer"), "default", "00" * 8, "", "a buffer key"),
        (StoreForm("outer-join-buffer"), "default", "00" * 8 + "02", "", "side 00 or 01"),
        (StoreForm("outer-join-buffer"), "default", SIDED.hex(), "00", "a list of values"),
        (StoreForm("outer-join-buffer"), "default", SIDED.hex(), encode_list([None]).hex(), "a list of values"),
        (StoreForm("outer-join-buffer"), "default", SIDED.hex(), encode_list([b""]).hex(), "the side of its key"),
        (StoreForm("outer-join-buffer"), "default", SIDED.hex(), encode_list([b"\0v"]).hex(), "the side of its key"),
        (StoreForm("foreign-key-subscriptions"), "default", "0000000361", SUBSCRIPTION.hex(), "a subscription's key"),
        (
            StoreForm("foreign-key-subscriptions"),
            "default",
            "0000000061",
            "0204" + "00" * 20,
            "of version 0 or 1",
        ),
        (
            StoreForm("foreign-key-subscriptions"),
            "default",
            "0000000061",
            "0100" + "00" * 15,
            "of version 0 or 1",
        ),
        (StoreForm("grace-join-buffer"), "default", "01" + "00" * 12, "", "a buffer key"),
        (StoreForm("grace-join-buffer"), "default", "00" * 13, "00" * 24, "a buffered change of version 3"),
    ],
)
def test_a_bad_row_is_named(form: StoreForm, family: str, key: str, value: str, problem: str) -> None:
    with pytest.raises(CorruptError, match=rf"KAFKA_BYTES.*{problem}") as error:
        row(form, family, (bytes.fromhex(key), bytes.fromhex(value)))
    assert f"the stored key {key[:48]}" in error.value.message


def test_the_error_is_about_the_first_bad_row() -> None:
    """Although keys are decoded before values."""
    form = StoreForm("key-value", "string", "long")
    rows = [(b"%d" % number, bytes(8)) for number in range(9)]
    rows[5], rows[7] = (b"five", b"short"), (b"\xff", bytes(8))
    with pytest.raises(CorruptError, match=r"value of the row with the stored key 66697665 .*found 73686f7274"):
        row(form, "default", *rows)


def test_a_long_cell_is_shortened() -> None:
    with pytest.raises(CorruptError, match=r"found 0{48}\.\.\. \(1000 bytes\)"):
        row(StoreForm("key-value", "string", "long"), "default", (b"k", bytes(1000)))


def test_unknown_kinds_and_families_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"KAFKA_STORE_KIND.*'table'; expected key-value, "):
        row_schema(StoreForm("table"))
    with pytest.raises(InvalidInputError, match=r"KAFKA_STORE_KIND.*'keyValueWithTimestamp'; expected default"):
        row(StoreForm("window"), "keyValueWithTimestamp")
    with pytest.raises(InvalidInputError, match=r"KAFKA_STORE_KIND.*only a changelog"):
        row(StoreForm("suppression-buffer"), "default")
    with pytest.raises(UnsupportedError, match=r"UNSUPPORTED_SERDE.*'text'"):
        row_schema(StoreForm("window", "text"))


@pytest.mark.parametrize("mark", [b"\4", b"", b"\3\3"])
def test_unknown_versions_of_buffers_are_refused(mark: bytes) -> None:
    value = buffers.encode_buffered(CHANGE)
    with pytest.raises(UnsupportedError, match=r"BUFFER_VERSION.*expected 01, 02 or 03"):
        logged(StoreForm("suppression-buffer"), b"k", value, mark)


def logged(form: StoreForm, key: bytes, value: bytes | None, mark: bytes | None) -> pa.RecordBatch:
    """A record, perhaps with header ``v``."""
    headers = [[] if mark is None else [{"name": "v", "value": mark}]]
    columns = pa.array([key], pa.binary()), pa.array([value], pa.binary())
    return logged_rows(form, *columns, pa.array([5], pa.int64()), pa.array(headers, HEADERS))


def test_times_to_the_end_of_the_range() -> None:
    """A window may end beyond it, as windows without end do; a time beyond it is never shown as another one."""
    form = StoreForm("timestamped-window", window_size=1)
    rows = [(encode_store_key(b"k", time), encode_timestamped(b"v", time)) for time in (-MOST_MS, 0, MOST_MS)]
    found = row(form, "keyValueWithTimestamp", *rows)
    for name in ("window_start", "timestamp"):
        assert found[name].cast(pa.int64()).to_pylist() == [-MOST_MS * 1000, 0, MOST_MS * 1000]
    assert found["window_end"].cast(pa.int64()).to_pylist() == [(1 - MOST_MS) * 1000, 1000, None]
    endless = row(StoreForm("window", window_size=2**63 - 1), "default", (encode_store_key(b"k", 0), b"v"))
    assert endless["window_end"].to_pylist() == [None]
    for time in (-(2**63), -MOST_MS - 1, MOST_MS + 1, 2**63 - 1):
        with pytest.raises(CorruptError, match=rf"KAFKA_BYTES.*found {time}, expected epoch milliseconds from"):
            row(form, "keyValueWithTimestamp", rows[0], (encode_store_key(b"k", 0), encode_timestamped(b"v", time)))


GOOD: dict[str, tuple[bytes, bytes]] = {
    "plain": (b"key", encode_timestamped_headers(b"value", 5, [("name", b"1"), ("other", None)])),
    "window": (encode_store_key(b"k", 5, 1), encode_timestamped_headers(b"value", 5, [("name", b"1")])),
    "time-ordered window": (encode_time_first_key(b"k", 5, 0), encode_timestamped_headers(b"v", 5, [("n", None)])),
    "session": (encode_session_key(b"k", 5, 6), b"\4\2\0\1"),
    "time-ordered session": (bytes(17), b"aggregate"),
    "versioned": (
        b"\0" * 8 + b"k",
        bytes.fromhex("00000000000000090000000000000005" + "000000000000000500000001" + "61"),
    ),
    "outer-join buffer": (SIDED, encode_list([b"\1v", b"\1"])),
    "subscription": (encode_subscription_key(b"f", b"k"), encode_timestamped_headers(SUBSCRIPTION, 5, [])),
    "grace buffer": (encode_time_first_key(b"k", 5, 1), buffers.encode_buffered(CHANGE)),
    "suppression": (b"k", buffers.encode_buffered(CHANGE)),
}
EDITS = st.tuples(st.integers(0, 60), st.integers(0, 4), st.binary(max_size=6))


def edited(data: bytes, edit: tuple[int, int, bytes]) -> bytes:
    at, removed, added = edit
    return data[:at] + added + data[at + removed :]


@few_or_many(
    12,
    240,
    edits=st.lists(st.tuples(EDITS, EDITS), min_size=1, max_size=6),
    mark=st.sampled_from([None, b"\1", b"\2", b"\3"]),
    serde=st.sampled_from(["bytes", "string", "integer", "list<string>", "list<short>", "json", "time-windowed<uuid>"]),
)
def test_any_bytes_are_read_or_refused(
    edits: list[tuple[tuple[int, int, bytes], ...]], mark: bytes | None, serde: str
) -> None:
    """Never with an error of another kind, and what is read is a valid batch."""
    for name, kind in KINDS.items():
        form = StoreForm(name, serde, serde, 5)
        key, value = GOOD[kind.rows]
        rows = [(edited(key, one), edited(value, other)) for one, other in edits]
        with named((name, rows)):
            for family in kind.families:
                with contextlib.suppress(CorruptError):
                    row(form, family, *rows).validate(full=True)
            for one, other in [*rows, (key, None)]:
                with contextlib.suppress(CorruptError):
                    logged(form, one, other, mark).validate(full=True)


@pytest.mark.parametrize("serde", ["string", "long", "integer", "uuid", "json", "boolean", "list<long>"])
def test_any_serde_on_any_real_store_reads_or_refuses(serde: str) -> None:
    stores = [(app, store) for app in map(application, APPLICATIONS) for store in app.stores()]
    refused = 0
    for app, store in stores:
        form = StoreForm(form_of(store).kind, serde, serde)
        mine = [(place[2], rows) for place, rows in app.raw.items() if place[1] == store["name"]]
        for family, rows in mine:
            try:
                row(form, family, *rows).validate(full=True)
            except CorruptError as error:
                assert "the stored key" in error.message and "expected" in error.message
                assert any(key[:24].hex() in error.message for key in chain(*rows))
                refused += 1
    assert refused > 10
