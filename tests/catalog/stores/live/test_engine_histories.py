"""Random histories through the real stores of Kafka Streams and through live stores with Kafka's serdes.

Every answer is the engine's, but for the faults of the engine that docs/decisions/022-kafka-semantics.md lists.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from models.operations import (
    INTERVAL,
    RETENTION,
    Operation,
    apply,
    key_value_operations,
    session_operations,
    window_operations,
)
from support.engines.kafka_oracle import PROJECT, Oracle
from support.kafka.running.java_project import class_path

import statestore

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("STATESTORE_EXAMPLES", "6"))
ROUND = int(os.environ.get("STATESTORE_SEED", "1"))
PHASES = (Phase.explicit, Phase.generate)
WITHOUT = ("approximate_num_entries", "put_all", "observed_stream_time")
WINDOW = {"kind": "window", "retention": RETENTION, "window_size": 10}
KINDS: dict[str, tuple[dict[str, Any], st.SearchStrategy[list[Operation]]]] = {
    "key_value": ({"kind": "key_value"}, key_value_operations(without=WITHOUT)),
    "window": (WINDOW, window_operations(without=WITHOUT)),
    "duplicates": ({**WINDOW, "retain_duplicates": True}, window_operations(without=WITHOUT)),
    "time_ordered": ({**WINDOW, "time_ordered": True}, window_operations(without=WITHOUT)),
    "time_ordered_duplicates": (
        {**WINDOW, "time_ordered": True, "retain_duplicates": True},
        window_operations(without=WITHOUT),
    ),
    "session": ({"kind": "session", "retention": RETENTION}, session_operations(without=WITHOUT)),
}
ARGUMENTS = {
    "put": ("key", "value", "time"),
    "put_if_absent": ("key", "value"),
    "range": ("low", "high"),
    "reverse_range": ("low", "high"),
    "prefix_scan": ("prefix",),
    "fetch": ("key", "from", "to"),
    "fetch_range": ("low", "high", "from", "to"),
    "fetch_all": ("from", "to"),
    "fetch_session": ("key", "start", "end"),
    "remove": ("key", "start", "end"),
    "find_sessions": ("key", "from", "to"),
    "find_sessions_range": ("low", "high", "from", "to"),
}


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    with Oracle(class_path(PROJECT, tmp_path_factory.mktemp("kafka"))) as oracle:
        yield oracle


def hexed(cell: Any) -> Any:
    """A key or value as the engine's program takes and gives it."""
    if isinstance(cell, str):
        return cell.encode().hex()
    return cell.hex() if isinstance(cell, bytes) else cell


def engine_operation(kind: str, operation: Operation) -> dict[str, Any]:
    verb, arguments = operation
    if verb == "dropped_records":
        return {"op": "dropped"}
    if kind != "session" and verb == "fetch" and len(arguments) == 2:
        return {"op": "fetch_one", "key": hexed(arguments[0]), "time": arguments[1]}
    names = ARGUMENTS.get(verb.removeprefix("backward_"), ("key",))
    if kind == "session" and verb == "put":
        names = ("key", "start", "end", "value")
    return {"op": verb, **dict(zip(names, map(hexed, arguments), strict=False))}


def engine_form(verb: str, kind: str, answer: Any) -> Any:
    """An answer of ours as the engine's program gives it."""
    if not isinstance(answer, list):
        return hexed(answer)
    if kind in ("key_value", "session"):
        return [[hexed(cell) for cell in row] for row in answer]
    one_key = verb.removeprefix("backward_") == "fetch"
    return [[*([] if one_key else [hexed(key)]), start, hexed(value)] for key, start, _, value in answer]


def departure(name: str, asked: dict[str, Any], theirs: Any, ours: Any) -> str | None:
    """The fault of the engine that explains a difference; None if there is none."""
    verb = asked["op"].removeprefix("backward_")
    if verb == "prefix_scan" and asked["prefix"].endswith("ff"):
        return "prefix ending in ff" if [row for row in theirs if row[0].startswith(asked["prefix"])] == ours else None
    if name.startswith("time_ordered") and asked.get("from", 0) < 0 and theirs == []:
        return "negative from"
    if name in ("window", "duplicates") and verb == "fetch_range" and asked["high"] is not None:
        missed = [row for row in ours if row not in theirs]
        prefixes = all(asked["high"].startswith(row[0]) and row[0] != asked["high"] for row in missed)
        return "prefix of the upper end" if prefixes and [r for r in ours if r in theirs] == theirs else None
    if verb == "find_sessions" and asked["to"] < 0 and isinstance(theirs, dict) and ours == []:
        return "exception for a negative latest start"
    return None


@pytest.mark.parametrize("name", KINDS)
def test_answers_are_those_of_the_engine(name: str, oracle: Oracle) -> None:
    options, operations = KINDS[name]
    store = {**options, "duplicates": options.get("retain_duplicates", False)}
    counts: Counter[str] = Counter()

    @seed(ROUND)
    @given(history=operations)
    @settings(max_examples=EXAMPLES, deadline=None, phases=PHASES, database=None)
    def run(history: list[Operation]) -> None:
        asked = [engine_operation(options["kind"], operation) for operation in history]
        answers = oracle.answers({"store": store, "ops": asked})
        with tempfile.TemporaryDirectory() as folder:
            interval: dict[str, Any] = {} if options["kind"] == "key_value" else {"segment_interval": INTERVAL}
            catalog: Any = statestore.connect(folder)
            live = catalog.create_store(
                "s", **options, **interval, key={"k": "binary"}, value={"v": "string"}, serde="kafka"
            )
            with live:
                for operation, question, theirs in zip(history, asked, answers, strict=True):
                    ours = engine_form(operation[0], options["kind"], apply(live, operation))
                    why = None if ours == theirs else departure(name, question, theirs, ours)
                    assert ours == theirs or why, f"{question}\nengine {theirs}\nours   {ours}\nin {asked}"
                    counts["put" if question["op"] == "put" else why or "equal"] += 1

    run()
    print(f"\n{name}: {dict(counts)}")
    assert counts["equal"] > EXAMPLES


def versioned_history(rng: random.Random) -> list[dict[str, Any]]:
    """Puts around the borders of segments and of the retention, and questions about the same times."""
    history: list[dict[str, Any]] = []
    latest = 0
    for _ in range(rng.randrange(5, 60)):
        key = rng.choice(["", "61", "6100", "62"])
        near = latest + rng.choice([-RETENTION - 1, -RETENTION, -40_000, -20_000, -10, -1, 0, 0, 1, 10, 20_000, 50_000])
        time = max(0, near)
        verb = rng.choice(["put", "put", "put", "delete", "get", "get_as_of", "get_versions"])
        asked: dict[str, Any] = {"op": verb, "key": key}
        if verb == "put":
            asked["value"] = rng.choice(["", "76", "77", "78", None])
        if verb in ("put", "delete", "get_as_of"):
            asked["time"] = time
        if verb == "get_versions":
            asked["from"], asked["to"] = sorted((time, max(0, latest + rng.randrange(-RETENTION, 10))))
        if verb == "put" or (verb == "delete" and time >= latest - RETENTION):
            latest = max(latest, time)
        history.append(asked)
    return history


def versioned_answer(store: Any, asked: dict[str, Any]) -> Any:
    key, time = bytes.fromhex(asked["key"]), asked.get("time")
    match asked["op"]:
        case "put":
            value = None if asked["value"] is None else bytes.fromhex(asked["value"]).decode()
            result = store.put(key, value, time)
            return -(2**63) if not result.accepted else -1 if result.valid_to is None else result.valid_to
        case "get_versions":
            found = store.get_versions(key, asked["from"], asked["to"], ascending=True)
            return [[hexed(row.value), row.valid_from, row.valid_to] for row in found]
        case "delete":
            row = store.delete(key, time)
        case "get":
            row = store.get(key)
        case _:
            row = store.get(key, time)
    return None if row is None else [hexed(row.value), row.valid_from]


def test_versioned_answers_are_those_of_the_engine(oracle: Oracle) -> None:
    counts: Counter[str] = Counter()
    for number in range(EXAMPLES):
        history = versioned_history(random.Random(f"{ROUND}-{number}"))
        answers = oracle.answers({"store": {"kind": "versioned", "retention": RETENTION}, "ops": history})
        with tempfile.TemporaryDirectory() as folder:
            live = statestore.connect(folder).create_store(
                "s",
                kind="versioned",
                key={"k": "binary"},
                value={"v": "string"},
                serde="kafka",
                history_retention=RETENTION,
            )
            with live:
                for asked, theirs in zip(history, answers, strict=True):
                    ours = versioned_answer(live, asked)
                    missed = asked["op"] == "get_versions" and [row for row in ours if row in theirs] == theirs
                    assert ours == theirs or missed, f"{asked}\nengine {theirs}\nours   {ours}\nin {history}"
                    counts["equal" if ours == theirs else "more versions"] += 1
    print(f"\nversioned: {dict(counts)}")
    assert counts["equal"] > EXAMPLES
