"""States of serializers that users wrote, read with the types that a user gives, against what the job recorded.

The serializers write eight bytes and a text of Java's ``writeUTF``, and a number times a factor in three bytes. In a
heap checkpoint nothing says where such values end but the given types.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.flink.fixtures import fixture, manifest, truth
from support.flink.snapshot_reads import rows_of, source_at

from statestore.formats.errors import CorruptError, InvalidInputError, UnsupportedError
from statestore.formats.flink.source import FlinkSource

MONEY, SCALED = "struct<cents: bigint, currency: utf>", "struct<high: tinyint, low: smallint>"
GIVEN = {
    "simple.m-price": MONEY,
    "simple.m-payments": MONEY,
    "simple.m-accounts": MONEY,
    "body.m-ratio": SCALED,
    "body.m-ratios": SCALED,
}
FACTORS = {"m-ratio": 100, "m-ratios": 8}
SNAPSHOTS = [
    ("custom-rocksdb", "checkpoint"),
    ("custom-rocksdb", "savepoint-canonical"),
    ("custom-hashmap", "checkpoint"),
]
STATES = (*GIVEN, *(f"{operator}.{name}" for operator in ("simple", "body") for name in ("a-first", "z-last")))


def source_of(run: str, kind: str, types: dict[str, str]) -> FlinkSource:
    path = next(each["path"] for each in manifest(run)["snapshots"] if each["kind"] == kind)
    return source_at(fixture(run) / path, {"type": ";".join(f"{state}={text}" for state, text in types.items())})


def values(source: FlinkSource, state: str) -> dict[int, Any]:
    """A value for each key: of lists a list in order, of maps a dictionary."""
    found: dict[int, Any] = {}
    for row in rows_of(source, state).to_pylist():
        if "position" in row:
            assert row["position"] == len(found.setdefault(row["key"], []))
            found[row["key"]].append(row["value"])
        elif "map_key" in row:
            assert row["map_key"] not in found.setdefault(row["key"], {})
            found[row["key"]][row["map_key"]] = row["map_value"]
        else:
            assert row["key"] not in found
            found[row["key"]] = row["value"]
    return found


def recorded(run: str, state: str) -> dict[int, Any]:
    operator, _, name = state.partition(".")
    lines = [each for each in truth(run, "truth-1.jsonl") if (each["operator"], each["state"]) == (operator, name)]
    return {each["key"]: _recorded(each["kind"], each["value"], FACTORS.get(name, 0)) for each in lines}


def _recorded(kind: str, value: Any, factor: int) -> Any:
    if kind == "map":
        return dict(value)
    if kind == "list":
        return [_scaled(each, factor) if factor else each for each in value]
    return _scaled(value, factor) if factor else value


def _scaled(value: dict[str, float], factor: int) -> dict[str, int]:
    high, low = divmod(round(value["number"] * factor), 1 << 16)
    return {"high": high, "low": low - (1 << 16) if low >= 1 << 15 else low}


@pytest.mark.parametrize(("run", "kind"), SNAPSHOTS, ids=[" ".join(each) for each in SNAPSHOTS])
def test_values_of_users_serializers_are_those_that_the_job_recorded(run: str, kind: str) -> None:
    source = source_of(run, kind, GIVEN)
    for state in STATES:
        known = recorded(run, state)
        assert known and values(source, state) == known, state


def test_the_job_recorded_nulls_and_texts_of_several_bytes() -> None:
    maps = recorded("custom-hashmap", "simple.m-accounts").values()
    accounts = [each for entries in maps for each in entries.values()]
    assert None in accounts
    assert {each["currency"] for each in accounts if each is not None} == {"EUR", "€,"}


def test_a_heap_state_behind_one_without_a_type_is_refused() -> None:
    """The checkpoint stores z-last behind m-price, and the other states of the operator before it."""
    source = source_of(
        "custom-hashmap", "checkpoint", {name: each for name, each in GIVEN.items() if "price" not in name}
    )
    for state in ("simple.a-first", "simple.m-payments", "simple.m-accounts"):
        assert values(source, state) == recorded("custom-hashmap", state)
    with pytest.raises(UnsupportedError, match=r"FLINK_OPAQUE.*z-last.*m-price.*Money.*give the types of all states"):
        values(source, "simple.z-last")
    with pytest.raises(UnsupportedError, match=r"FLINK_OPAQUE.*m-price.*give a type"):
        values(source, "simple.m-price")


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("simple.m-price", "struct<cents: bigint>"),
        ("simple.m-payments", "struct<cents: bigint>"),
        ("simple.m-accounts", "bigint"),
        ("body.m-ratio", "smallint"),
        ("body.m-ratio", "int"),
        ("body.m-ratios", "struct<a: smallint, b: smallint>"),
    ],
)
def test_a_type_of_another_length_is_refused_where_nothing_frames_the_values(state: str, text: str) -> None:
    """Also for the states before and behind."""
    source = source_of("custom-hashmap", "checkpoint", {**GIVEN, state: text})
    for each in STATES:
        if each.partition(".")[0] == state.partition(".")[0]:
            with pytest.raises(CorruptError, match=r"FLINK_(FILE|ROW).*correct the type"):
                rows_of(source, each)


def test_a_state_read_as_bytes_does_not_hide_those_behind_it() -> None:
    source = source_of("custom-hashmap", "checkpoint", {**GIVEN, "simple.a-first": "binary"})
    for state in ("simple.z-last", "simple.m-accounts"):
        assert values(source, state) == recorded("custom-hashmap", state)


@pytest.mark.parametrize(("run", "kind"), SNAPSHOTS, ids=[" ".join(each) for each in SNAPSHOTS])
def test_a_type_whose_bytes_do_not_fit_is_refused(run: str, kind: str) -> None:
    source = source_of(run, kind, {**GIVEN, "simple.m-price": MONEY.replace("utf", "string")})
    with pytest.raises(CorruptError, match=r"(FLINK_ROW.*simple\.m-price|FLINK_FILE).*correct the type"):
        rows_of(source, "simple.m-price")


@pytest.mark.parametrize(("state", "column"), [("a-first", ""), ("a-first", ".key"), ("m-accounts", ".map_key")])
def test_utf_is_refused_for_values_of_flinks_own_serializers(state: str, column: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"FLINK_TYPE.*simple\.{state}.*found utf, expected"):
        source_of("custom-rocksdb", "checkpoint", {f"simple.{state}{column}": "utf"}).states()
