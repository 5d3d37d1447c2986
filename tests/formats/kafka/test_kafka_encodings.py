"""Every case of encodings.json in both directions: bytes and texts as Kafka writes them, and their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from support.kafka import buffers, joins
from support.parameters import named
from support.stores.kafka_vectors import cases

from statestore.formats.errors import CorruptError
from statestore.formats.kafka.columns.store_form import StoreForm
from statestore.formats.kafka.columns.store_kinds import KINDS
from statestore.formats.kafka.directory import state_directory, stored_offsets, task_offsets
from statestore.formats.kafka.key_filters import encoded_keys
from statestore.formats.kafka_rows import session_keys, timestamped, versioned_store, window_keys
from statestore.formats.kafka_rows import time_segments as segments
from statestore.formats.kafka_rows.list_serde import any_deserializer, any_serializer
from statestore.formats.values.filters import Filter

Params = dict[str, Any]
CASES = cases("encodings")


def cases_of(*prefixes: str) -> list[dict[str, Any]]:
    found = [case for case in CASES if case["kind"].startswith(prefixes)]
    assert found
    return found


def of_kinds(*prefixes: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in cases_of(*prefixes)]


def read(serde: str, data: bytes | None) -> Any:
    found = any_deserializer(serde)(data)
    return str(found) if isinstance(found, UUID) else found.hex() if isinstance(found, bytes) else found


def write(serde: str, value: Any) -> bytes:
    data = any_serializer(serde)(bytes.fromhex(value) if serde == "bytes" else value)
    assert data is not None
    return data


def hex_headers(found: list[tuple[str, bytes | None]]) -> list[list[str | None]]:
    return [[key, None if value is None else value.hex()] for key, value in found]


def header_list(given: list[list[str | None]]) -> list[tuple[str, bytes | None]]:
    return [(str(key), None if value is None else bytes.fromhex(value)) for key, value in given]


# Serdes


def serde(case: dict[str, Any]) -> str:
    name: str = case["kind"].removeprefix("serde:")
    return f"List<{case['params']['inner']}>" if name == "list" else name


def test_serdes() -> None:
    for case in cases_of("serde:"):
        with named(case):
            assert read(serde(case), bytes.fromhex(case["hex"])) == case["decoded"]
            assert write(serde(case), case["decoded"]).hex() == case["hex"]


# Keys and values. Each reader gives what a case has as ``decoded``, each writer makes the bytes of it.


def read_window(decode: Callable[[bytes], window_keys.WindowKey]) -> Callable[[bytes, Params], Params]:
    def reader(data: bytes, params: Params) -> Params:
        key, start, sequence = decode(data)
        found = {"key": read(params["key_serde"], key), "start": start, "seqnum": sequence}
        if "window_size_ms" in params:
            found["end"] = window_keys.window_end(start, params["window_size_ms"])
        return found

    return reader


def write_window(encode: Callable[[bytes, int, int], bytes]) -> Callable[[Params, Params], bytes]:
    return lambda case, params: encode(write(params["key_serde"], case["key"]), case["start"], case["seqnum"])


def read_session(decode: Callable[[bytes], session_keys.SessionKey]) -> Callable[[bytes, Params], Params]:
    def reader(data: bytes, params: Params) -> Params:
        key, start, end = decode(data)
        return {"key": read(params["key_serde"], key), "start": start, "end": end}

    return reader


def write_session(encode: Callable[[bytes, int, int], bytes]) -> Callable[[Params, Params], bytes]:
    return lambda case, params: encode(write(params["key_serde"], case["key"]), case["start"], case["end"])


def read_topic_key(data: bytes, params: Params) -> Params:
    key, start = window_keys.decode_topic_key(data)
    return {"key": read(params["key_serde"], key), "start": start}


def read_timestamped(data: bytes, params: Params) -> Params:
    timestamp, value = timestamped.decode_timestamped(data)
    return {"timestamp": timestamp, "value": read(params["value_serde"], value)}


def read_timestamped_headers(data: bytes, params: Params) -> Params:
    found, timestamp, value = timestamped.decode_timestamped_headers(data)
    return {"headers": hex_headers(found), "timestamp": timestamp, "value": read(params["value_serde"], value)}


def write_timestamped_headers(case: Params, params: Params) -> bytes:
    value, found = write(params["value_serde"], case["value"]), header_list(case["headers"])
    return timestamped.encode_timestamped_headers(value, case["timestamp"], found)


def read_aggregation(data: bytes, params: Params) -> Params:
    found, value = timestamped.decode_with_headers(data)
    return {"headers": hex_headers(found), "value": read(params["value_serde"], value)}


def read_outer_join_key(data: bytes, params: Params) -> Params:
    timestamp, left, key = joins.decode_outer_join_key(data)
    return {"timestamp": timestamp, "left": left, "key": read(params["key_serde"], key)}


def read_side(data: bytes, params: Params) -> Params:
    left, value = joins.decode_left_or_right(data)
    side = "left" if left else "right"
    return {side: read(params[f"{side}_serde"], value)}


def write_side(case: Params, params: Params) -> bytes:
    ((side, value),) = case.items()
    return joins.encode_left_or_right(write(params[f"{side}_serde"], value), side == "left")


def read_subscription_key(data: bytes, params: Params) -> Params:
    foreign, primary = joins.decode_subscription_key(data)
    return {"foreign_key": read(params["key_serde"], foreign), "primary_key": read(params["key_serde"], primary)}


def write_subscription_key(case: Params, params: Params) -> bytes:
    foreign, primary = write(params["key_serde"], case["foreign_key"]), write(params["key_serde"], case["primary_key"])
    return joins.encode_subscription_key(foreign, primary)


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def read_buffered(data: bytes, params: Params) -> Params:
    found = buffers.decode_buffered(data)
    assert found.context is not None
    context = {**vars(found.context), "headers": hex_headers(list(found.context.headers))}
    values = {name: text(getattr(found, name)) for name in ("prior", "old", "new")}
    return {"context": context, **values, "buffer_time": found.buffer_time}


def write_buffered(case: Params, params: Params) -> bytes:
    context = buffers.RecordContext(**{**case["context"], "headers": tuple(header_list(case["context"]["headers"]))})
    prior, old, new = (None if case[name] is None else case[name].encode() for name in ("prior", "old", "new"))
    return buffers.encode_buffered(buffers.Buffered(context, prior, old, new, case["buffer_time"]))


def read_row(data: bytes) -> Params:
    row = versioned_store.decode_row(data)
    records = [{"valid_from": a, "valid_to": b, "value": text(value)} for a, b, value in row.intervals()]
    return {
        "next_timestamp": row.next,
        "min_timestamp": row.min,
        "degenerate": row.degenerate,
        "records": records,
    }


def write_row(case: Params) -> bytes:
    versions = [(one["valid_from"], None if one["value"] is None else one["value"].encode()) for one in case["records"]]
    return versioned_store.encode_row(
        versioned_store.TimeSegmentRow(case["next_timestamp"], case["min_timestamp"], versions)
    )


def int_partitions(case: dict[str, dict[str, Any]]) -> dict[str, dict[int, Any]]:
    return {topic: {int(n): offset for n, offset in found.items()} for topic, found in case.items()}


BINARY: dict[str, tuple[Callable[[bytes, Params], Any], Callable[[Any, Params], bytes]]] = {
    "varint": (lambda data, _: timestamped.decode_varint(data), lambda case, _: timestamped.encode_varint(case)),
    "headers": (
        lambda data, _: hex_headers(timestamped.decode_headers(data)),
        lambda case, _: timestamped.encode_headers(header_list(case)),
    ),
    "position": (
        lambda data, _: stored_offsets.decode_position(data),
        lambda case, _: stored_offsets.encode_position(case),
    ),
    "key:window-store": (
        read_window(window_keys.decode_store_key),
        write_window(window_keys.encode_store_key),
    ),
    "key:window-topic": (
        read_topic_key,
        lambda case, params: window_keys.encode_topic_key(write(params["key_serde"], case["key"]), case["start"]),
    ),
    "key:window-time-first": (
        read_window(window_keys.decode_time_first_key),
        write_window(window_keys.encode_time_first_key),
    ),
    "key:window-key-first": (
        read_window(window_keys.decode_key_first_key),
        write_window(window_keys.encode_key_first_key),
    ),
    "key:session": (
        read_session(session_keys.decode_session_key),
        write_session(session_keys.encode_session_key),
    ),
    "key:session-time-first": (
        read_session(session_keys.decode_time_first_session_key),
        write_session(session_keys.encode_time_first_session_key),
    ),
    "key:session-key-first": (
        read_session(session_keys.decode_key_first_session_key),
        write_session(session_keys.encode_key_first_session_key),
    ),
    "key:outer-join": (
        read_outer_join_key,
        lambda case, params: joins.encode_outer_join_key(
            write(params["key_serde"], case["key"]), case["timestamp"], case["left"]
        ),
    ),
    "key:foreign-key-subscription": (read_subscription_key, write_subscription_key),
    "value:timestamped": (
        read_timestamped,
        lambda case, params: timestamped.encode_timestamped(
            write(params["value_serde"], case["value"]), case["timestamp"]
        ),
    ),
    "value:timestamped-headers": (read_timestamped_headers, write_timestamped_headers),
    "value:aggregation-headers": (
        read_aggregation,
        lambda case, params: timestamped.encode_with_headers(
            write(params["value_serde"], case["value"]), header_list(case["headers"])
        ),
    ),
    "value:left-or-right": (read_side, write_side),
    "value:suppress-changelog-v3": (read_buffered, write_buffered),
    "value:versioned-segment": (lambda data, _: read_row(data), lambda case, _: write_row(case)),
}


def test_keys_and_values() -> None:
    for case in cases_of(*BINARY):
        decode, encode = BINARY[case["kind"]]
        decoded, params = case["decoded"], case.get("params", {})
        expected = int_partitions(decoded) if case["kind"] == "position" else decoded
        with named(case):
            assert decode(bytes.fromhex(case["hex"]), params) == expected
            window = case["kind"] == "key:window-store"
            given = {k: v for k, v in expected.items() if k != "end"} if window else expected
            assert encode(given, params).hex() == case["hex"]


# Versioned stores


@pytest.mark.parametrize("case", of_kinds("row:versioned"))
def test_rows_of_versioned_stores(case: dict[str, Any]) -> None:
    key, value = (bytes.fromhex(part) for part in case["hex"].split(":"))
    expected = case["decoded"]
    assert versioned_store.split_row_key(key) == (expected["segment_id"], expected["key"].encode())
    assert versioned_store.row_key(expected["segment_id"], expected["key"].encode()) == key
    if "latest" in expected:
        latest = expected["latest"]["timestamp"], expected["latest"]["value"].encode()
        assert versioned_store.decode_latest(value) == latest
        assert versioned_store.encode_latest(*latest) == value
    else:
        assert read_row(value) == expected["row"]
        assert write_row(expected["row"]) == value


@pytest.mark.parametrize("case", of_kinds("op:versioned-segment-insert-latest"))
def test_insert_after_an_interrupted_write(case: dict[str, Any]) -> None:
    row, new = versioned_store.decode_row(bytes.fromhex(case["hex"])), case["params"]
    row.insert_latest(new["valid_from"], new["valid_to"], new["value"].encode())
    found = versioned_store.encode_row(row)
    assert found.hex() == case["expect_hex"]
    assert read_row(found) == case["decoded"]


# Files, directories, topics, intervals


@pytest.mark.parametrize("case", of_kinds("file:checkpoint", "file:position"))
def test_offset_files(case: dict[str, Any]) -> None:
    if case.get("error"):
        with pytest.raises(CorruptError, match="KAFKA_FILE"):
            task_offsets.decode_offsets(case["text"])
    else:
        expected = int_partitions(case["decoded"])
        assert task_offsets.decode_offsets(case["text"].encode()) == expected
        assert task_offsets.encode_offsets(expected) == case["text"]


@pytest.mark.parametrize("case", of_kinds("file:process-metadata"))
def test_process_metadata(case: dict[str, Any]) -> None:
    process = state_directory.decode_process_metadata(case["text"])
    assert str(process) == case["decoded"]["processId"]
    assert state_directory.encode_process_metadata(UUID(case["decoded"]["processId"])) == case["text"]


@pytest.mark.parametrize("case", of_kinds("segment-name"))
def test_segment_names(case: dict[str, Any]) -> None:
    store, interval, expected = case["params"]["store"], case["params"]["segment_interval_ms"], case["decoded"]
    segment = segments.decode_time_segment_name(store, case["text"], interval)
    assert segment == (expected["start_ms"], expected["segment_id"])
    assert segments.time_segment(expected["start_ms"], interval) == expected["segment_id"]
    spelling = case["text"][len(store)]
    assert segments.encode_time_segment_name(store, expected["segment_id"], interval, spelling) == case["text"]


@pytest.mark.parametrize("case", of_kinds("path"))
def test_paths(case: dict[str, Any]) -> None:
    found = state_directory.decode_store_path(case["text"])
    parts = {name: value for name, value in vars(found).items() if value is not None and name != "time_segment"}
    assert parts == case["decoded"]
    assert state_directory.encode_store_path(found) == case["text"]


@pytest.mark.parametrize("case", of_kinds("changelog-topic"))
def test_changelog_topics(case: dict[str, Any]) -> None:
    assert state_directory.changelog_topic(**case["params"]) == case["text"]


@pytest.mark.parametrize("case", of_kinds("default-segment-interval"))
def test_default_segment_intervals(case: dict[str, Any]) -> None:
    params = case["params"]
    if params["store"] == "versioned":
        assert segments.default_versioned_interval(params["history_retention_ms"]) == case["decoded"]
    else:
        assert segments.default_interval(params["retention_ms"]) == case["decoded"]


def test_no_kind_of_case_is_left_out() -> None:
    elsewhere = ("serde:", "row:", "op:", "file:", "segment-name", "path", "changelog-topic", "default-segment-")
    assert [case["id"] for case in CASES if case["kind"] not in BINARY and not case["kind"].startswith(elsewhere)] == []
    assert len(CASES) > 100


@pytest.mark.parametrize(
    ("serde", "value", "keys"),
    [
        ("Double", 0.0, {"0000000000000000", "8000000000000000"}),
        ("Float", -0.0, {"00000000", "80000000"}),
        ("Double", 1.5, {"3ff8000000000000"}),
        ("Double", float("nan"), None),  # which clients other than Java's write in many forms
        ("Long", 7, {"0000000000000007"}),
        ("UUID", "b0b17d52-3db8-ba86-621b-cd5717b1f9d4", None),  # which may have upper-case letters
    ],
)
def test_all_bytes_that_equal_a_key_are_looked_up(serde: str, value: Any, keys: set[str] | None) -> None:
    form = StoreForm("key-value", serde, "String")
    found = encoded_keys(form, KINDS["key-value"], [Filter("key", "=", value)])
    assert (None if found is None else {key.hex() for key in found}) == keys
