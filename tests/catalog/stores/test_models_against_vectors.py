"""The models of stores and the runner of Kafka's cases, each checked by the other, with further cases of our own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models.join_window import ChangeLogger, JoinWindowModel
from models.key_value import KeyValueModel
from models.operations import (
    INTERVAL,
    RETENTION,
    Operation,
    apply,
    join_window_operations,
    key_value_operations,
    session_operations,
    window_operations,
)
from models.session import SessionModel
from models.vector_adapters import KeyValueVerbs, SessionVerbs, WindowVerbs
from models.window import WindowModel
from support.stores.kafka_vectors import KINDS, cases, key_serializer, run_case, value_serializer

CASES = [case for name in ("keyvalue", "window", "session", "engine-stores") for case in cases(name)]


def adapter(store: dict[str, Any]) -> Any:
    """A model with the settings of a case."""
    key, value = key_serializer(store), value_serializer(store)
    match store["type"]:
        case "keyvalue":
            return KeyValueVerbs(KeyValueModel(key, value))
        case "window":
            return WindowVerbs(
                WindowModel(
                    key,
                    retention=store["retention_ms"],
                    window_size=store["window_size_ms"],
                    segment_interval=store["segment_interval_ms"],
                    retain_duplicates=store["retain_duplicates"],
                    time_ordered=store.get("time_ordered", False),
                    name=store["name"],
                    encode_value=value,
                )
            )
        case "window_original":
            return KeyValueVerbs(
                JoinWindowModel(
                    key,
                    window_before=store["window_before_ms"],
                    window_after=store["window_after_ms"],
                    retention=store["retention_ms"],
                    num_segments=store["num_segments"],
                    name=store["name"],
                    encode_value=value,
                )
            )
        case "session":
            return SessionVerbs(
                SessionModel(
                    key,
                    retention=store["retention_ms"],
                    segment_interval=store["segment_interval_ms"],
                    name=store["name"],
                    encode_value=value,
                )
            )
    raise AssertionError(store)


@pytest.mark.parametrize("kind", KINDS)
def test_cases(kind: str) -> None:
    """Every answer of a model is Kafka's, and none was left uncompared."""
    for case in CASES:
        if case["store"]["type"] == kind:
            compared = run_case(case, adapter(case["store"]))
            assert compared == sum("expect" in op for op in case["ops"]) > 0, case["id"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_answer_is_noticed(kind: str) -> None:
    """The runner refuses every kind of operation's answer when another one is expected."""
    seen = set()
    for case in CASES:
        for number, op in enumerate(case["ops"]):
            form = (op["op"], type(op.get("expect")))
            if case["store"]["type"] != kind or op.get("expect", []) == [] or form in seen or "expect_complete" in op:
                continue
            seen.add(form)
            wrong = copy.deepcopy(case)
            wrong["ops"][number]["expect"] = _other(op["expect"])
            with pytest.raises(AssertionError, match=f"operation {number} {op['op']}"):
                run_case(wrong, adapter(case["store"]))
    answering = {op["op"] for case in CASES if case["store"]["type"] == kind for op in case["ops"] if "expect" in op}
    assert {name for name, _ in seen} == answering


def _other(expected: Any) -> Any:
    """A wrong answer of the same form; None if there is none."""
    match expected:
        case None:
            return "00"
        case int():
            return expected + 1
        case str():
            return expected.translate(str.maketrans("0z", "1y")) if set(expected) & set("0z") else expected[::-1] * 2
        case list():
            return expected[:-1]
        case dict():
            return {**expected, "retention_ms": 1}
    raise AssertionError(expected)


def test_operations_left_out_are_not_asked() -> None:
    """``without`` leaves out what a store cannot do, and only that."""
    case = next(case for case in CASES if any(op["op"] == "physical" for op in case["ops"]))
    asked = []

    class Spy(WindowVerbs):
        def __getattr__(self, operation: str) -> Any:
            asked.append(operation)
            return super().__getattr__(operation)

    compared = run_case(case, Spy(adapter(case["store"]).store), without=("physical",))
    assert "physical" not in asked and "put" in asked
    assert compared == sum("expect" in op and op["op"] != "physical" for op in case["ops"])


SEQUENCES: dict[str, tuple[st.SearchStrategy[list[Operation]], Callable[[], Any]]] = {
    "key_value": (key_value_operations(), lambda: KeyValueModel(bytes)),
    "window": (window_operations(), lambda: WindowModel(bytes, RETENTION, 10, INTERVAL)),
    "duplicates": (window_operations(), lambda: WindowModel(bytes, RETENTION, 10, INTERVAL, retain_duplicates=True)),
    "session": (session_operations(), lambda: SessionModel(bytes, RETENTION, INTERVAL)),
    "join_window": (join_window_operations(), lambda: JoinWindowModel(bytes, 1_000, 3, RETENTION, 3)),
}
BOTH_WAYS = ("", "backward_")
WINDOW_READS = {way + verb for way in BOTH_WAYS for verb in ("fetch", "fetch_range", "fetch_all", "all")}
SESSION_READS = {way + verb for way in BOTH_WAYS for verb in ("find_sessions", "find_sessions_range", "fetch")}
READS = {
    "key_value": {"get", "range", "reverse_range", "all", "reverse_all", "prefix_scan", "put_if_absent", "delete"},
    "window": {*WINDOW_READS, "dropped_records"},
    "duplicates": {*WINDOW_READS, "dropped_records"},
    "session": {*SESSION_READS, "fetch_session", "fetch_range", "backward_fetch_range", "dropped_records"},
    "join_window": {"fetch"},
}


@pytest.mark.parametrize("examples", [8, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", SEQUENCES)
def test_operations(kind: str, examples: int) -> None:
    """Every operation can be applied; answers are plain, and a backward one is its twin's in reverse.

    In so few sequences every verb that reads has found something, and records were dropped as too late.
    """
    strategy, new = SEQUENCES[kind]
    found: set[str] = set()

    @given(operations=strategy)
    @settings(max_examples=examples, deadline=None, derandomize=True, database=None)
    def run(operations: list[Operation]) -> None:
        model = new()
        for verb, arguments in operations:
            result = apply(model, (verb, arguments))
            assert result is None or isinstance(result, int | str | list), (verb, result)
            if result:
                found.add(verb)
            for back in ("backward_", "reverse_"):
                if verb.startswith(back):
                    assert result == apply(model, (verb.removeprefix(back), arguments))[::-1]
        if model.dropped_records:
            found.add("dropped_records")

    run()
    assert found >= READS[kind] or examples < 300


def test_put_if_absent_and_delete_are_logged_as_kafka_does() -> None:
    """A null that is written is logged, also where nothing was; a value that is not written is not."""
    model = KeyValueModel(str.encode, str.encode)
    model.put_if_absent("a", None)
    model.put_if_absent("a", "1")
    model.put_if_absent("a", "2")
    model.delete("b")
    assert model.changelog() == [(b"a", None), (b"a", b"1"), (b"b", None)]


def test_sequence_numbers_start_anew_after_a_restart() -> None:
    """A put after a restart overwrites a restored duplicate of the same key and start, as in Kafka."""
    model = WindowModel(str.encode, RETENTION, 10, INTERVAL, retain_duplicates=True)
    model.put("a", "1", 5)
    model.put("a", "2", 5)
    model.wipe_and_restore()
    assert model.fetch("a", 5) is None
    model.put("a", "3", 5)
    assert [row.value for row in model.fetch("a", 0, 10)] == ["3", "2"]
    assert model.fetch("a", 5) == "3"


def test_dropped_records_are_logged_and_restored_in_silence() -> None:
    """The log is written without knowing; a restore counts nothing."""
    model = WindowModel(str.encode, RETENTION, 10, INTERVAL, encode_value=str.encode)
    model.put("a", "1", 5 * INTERVAL)
    model.put("a", "2", 0)
    assert (model.dropped_records, len(model.changelog())) == (1, 2)
    model.wipe_and_restore()
    assert (model.dropped_records, [row.value for row in model.all()]) == (0, ["1"])


def test_the_end_of_a_window_has_a_limit() -> None:
    """A window that would end after the last time there is ends there."""
    model = WindowModel(str.encode, RETENTION, 10, INTERVAL)
    model.put("a", "1", 2**63 - 5)
    assert model.all() == [("a", 2**63 - 5, 2**63 - 1, "1")]


def test_remove_moves_stream_time_and_counts_nothing() -> None:
    """Rows that are then too old are hidden at once; their segment is removed at the next put."""
    model = SessionModel(str.encode, RETENTION, INTERVAL, "s")
    model.put("a", 0, 10, "1")
    model.remove("a", 0, 10 * INTERVAL)
    assert (model.observed_stream_time, model.dropped_records, model.fetch("a")) == (10 * INTERVAL, 0, [])
    assert model.segments() == ["s.0"]
    model.put("b", 0, 10 * INTERVAL, "2")
    assert model.segments() == [f"s.{10 * INTERVAL}"]


def test_change_logger_sends_removed_keys_first() -> None:
    """Nulls for what was removed, then what is dirty as it is now; a key is in one of the sets at most."""
    values = {"a": 1, "b": 2, "c": 3}
    logger = ChangeLogger(values.get, threshold=2)
    for key in "ab":
        logger.add(key)
    logger.delete("a")
    values["b"] = 20
    logger.send_if_many()
    assert logger.sent == []
    logger.add("c")
    logger.add("d")
    logger.send_if_many()
    assert logger.sent == [("a", None), ("b", 20), ("c", 3), ("d", None)]
    logger.delete("b")
    logger.add("b")
    logger.send()
    assert logger.sent[4:] == [("b", 20)]


def test_rows_rolled_away_before_they_are_sent_are_logged_as_null() -> None:
    """And only what was sent comes back after a restart; a put that was refused takes no sequence number."""
    model = JoinWindowModel(str.encode, 3, 3, RETENTION, 3, encode_value=str.encode)
    model.put("a", "1", 0)
    model.put("a", "2", 4 * INTERVAL)
    assert model.put("a", "late", 0) is None
    model.flush()
    model.put("a", "3", 4 * INTERVAL)
    assert [(row.key[-4:], row.value) for row in model.changelog()] == [(b"\0\0\0\1", None), (b"\0\0\0\2", b"2")]
    assert model.fetch("a", 4 * INTERVAL) == ["2", "3"]
    model.wipe_and_restore()
    assert model.fetch("a", 4 * INTERVAL) == ["2"]


def test_join_window_keys_that_are_prefixes_do_not_leak() -> None:
    """The key b"a" and a key that continues with the bytes of a time are distinguished."""
    model = JoinWindowModel(bytes, 3, 3, RETENTION, 3)
    model.put(b"a" + bytes(8), "other", 0)
    model.put(b"a", "mine", 0)
    assert model.fetch(b"a", 0) == ["mine"]
