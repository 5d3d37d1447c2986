"""The models of stores and the runner of Kafka's cases, each proved by the other; what no case says, said here."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from kafka_vectors import KINDS, Case, cases, key_serializer, run_case, value_serializer
from models.join_window import JoinWindowModel
from models.key_value import KeyValueModel
from models.session import SessionModel
from models.vector_adapters import KeyValueVerbs, SessionVerbs, WindowVerbs
from models.window import WindowModel

CASES = [case for name in ("keyvalue", "window", "session") for case in cases(name)]
IDS = [f"{case['store']['type']}-{case['id']}" for case in CASES]


def adapter(store: dict[str, Any]) -> Any:
    """A model with a case's settings."""
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


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_case(case: Case) -> None:
    """Every answer of a model is Kafka's, and none was left uncompared."""
    compared = run_case(case, adapter(case["store"]))
    assert compared == sum("expect" in op for op in case["ops"]) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_answer_is_noticed(kind: str) -> None:
    """The runner refuses every kind of operation's answer when another one is expected."""
    seen = set()
    for case in CASES:
        for number, op in enumerate(case["ops"]):
            form = (op["op"], type(op.get("expect")))
            if case["store"]["type"] != kind or op.get("expect", []) == [] or form in seen:
                continue
            seen.add(form)
            wrong = copy.deepcopy(case)
            wrong["ops"][number]["expect"] = _other(op["expect"])
            with pytest.raises(AssertionError, match=f"operation {number} {op['op']}"):
                run_case(wrong, adapter(case["store"]))
    answering = {op["op"] for case in CASES if case["store"]["type"] == kind for op in case["ops"] if "expect" in op}
    assert {name for name, _ in seen} == answering


def _other(expected: Any) -> Any:
    """An answer of the same form that is wrong: None where there is none."""
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
    """``without`` leaves out what a store can not do, and only that."""
    case = next(case for case in CASES if any(op["op"] == "physical" for op in case["ops"]))
    asked = []

    class Spy(WindowVerbs):
        def __getattr__(self, operation: str) -> Any:
            asked.append(operation)
            return super().__getattr__(operation)

    compared = run_case(case, Spy(adapter(case["store"]).store), without=("physical",))
    assert "physical" not in asked and "put" in asked
    assert compared == sum("expect" in op and op["op"] != "physical" for op in case["ops"])
