"""States of jobs of PyFlink, read with the types that a user gives, against what the jobs wrote down.

``python-states.tar.xz`` has a folder for each form: of PyFlink 2.1.0 a canonical (``heap``) and a native savepoint
(``native``) of the heap and a native one of RocksDB (``rocks``), of 1.20.5 a canonical one of RocksDB (``old``).
``tests/engines/flink/python/states_job.py`` wrote them.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.archives import unpacked
from support.flink.python_truth import agree, plain
from support.flink.snapshot_reads import rows_of, source_at
from support.paths import DATA

from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.flink.source import FlinkSource

BASKET = "struct<owner: string, n: int, tags: array<string>, price: decimal(20,6)>"
VALUES = {
    "long": "bigint",
    "big_int": "bigint",
    "int": "int",
    "short": "smallint",
    "byte": "tinyint",
    "boolean": "boolean",
    "float": "float",
    "double": "double",
    "string": "string",
    "char": "string",
    "bytes": "binary",
    "big_dec": "decimal(20,6)",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp_ntz",
    "instant": "timestamp",
    "list": "array<int>",
    "basic_array": "array<string>",
    "object_array": "array<struct<a: bigint>>",
    "primitive_array": "array<int not null>",
    "doubles": "array<double not null>",
    "map": "map<string, array<int>>",
    "tuple": "struct<f0: string not null, f1: int not null, f2: boolean not null>",
    "row": BASKET,
    "wide": f"struct<{', '.join(f'c{i}: smallint' for i in range(15))}>",
    "pickle": "pickle",
}
LISTS = ("long", "string", "row", "list", "primitive_array", "pickle")
TYPES = {
    **{f"value-{name}": text for name, text in VALUES.items()},
    **{f"list-{name}": VALUES[name] for name in LISTS},
    "by-day": "int",
    "by-number": f"map<bigint, {BASKET}>",
    "sum": "bigint",
    "mean": "struct<f0: bigint not null, f1: bigint not null>",
    "kept": "string",
    "kept-list": "int",
    "kept-map": "map<int, string>",
}
OPTION = ";".join(f"python.python-state-{name}={text}" for name, text in TYPES.items())
OTHERS = ("rocks", "old")
RUNS = ("heap", "native", *(pytest.param(run, marks=pytest.mark.slow) for run in OTHERS))


def place(run: str) -> Path:
    return unpacked(DATA / "flink" / "python-states.tar.xz") / run


def snapshot(run: str, option: str) -> FlinkSource:
    uids = "python,rules,windows,pickled"  # metadata of 1.20 has hashes of them
    return source_at(next(place(run).glob("savepoint-*")), {"type": option, "uids": uids})


@cache
def truth(run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place(run) / "truth.json").read_text())
    return found


def by_key(source: FlinkSource, name: str) -> dict[str, Any]:
    """The values of a state for each key: a list in order of their positions, or a dictionary by the map's keys."""
    rows = rows_of(source, f"python.python-state-{name}")
    found: dict[str, Any] = {}
    cells = plain(rows["map_value" if "map_key" in rows.schema.names else "value"])
    for number, value in enumerate(cells):
        key = rows["key"][number].as_py()["f0"]
        if "map_key" in rows.schema.names:
            found.setdefault(key, {})[str(rows["map_key"][number].as_py())] = value
        else:
            assert rows["position"][number].as_py() == len(found.setdefault(key, []))
            found[key].append(value)
    return found


@pytest.mark.parametrize("run", ["heap", *(pytest.param(run, marks=pytest.mark.slow) for run in ("native", *OTHERS))])
def test_states_have_the_values_that_the_job_kept(run: str) -> None:
    source = snapshot(run, OPTION)
    wanted = truth(run)["by_key"]
    for name in TYPES:
        found = by_key(source, name)
        assert found.keys() == wanted.keys(), name
        for key, value in found.items():
            kept = wanted[key][name]
            whole = kept if name.startswith(("list-", "by-", "kept-")) else [kept]
            assert agree(value, whole), (name, key, value, kept)


@pytest.mark.parametrize("run", RUNS)
def test_a_time_to_live_is_that_of_each_element(run: str) -> None:
    rows = rows_of(snapshot(run, OPTION), "python.python-state-kept-list")
    accesses = rows["last_access"].cast("int64").to_pylist()
    assert all(each > 1_790_000_000_000_000 for each in accesses)
    assert len(set(accesses)) > 5  # elements of one bundle were accessed at once


@pytest.mark.parametrize("run", RUNS)
def test_broadcast_state_has_its_entries(run: str) -> None:
    for option in ("rules.python-state-rules=int", "rules.python-state-rules=map<string, int>"):
        rows = rows_of(snapshot(run, option), "rules.python-state-rules").to_pylist()
        assert {row["map_key"]: row["map_value"] for row in rows} == truth(run)["rules"]


@pytest.mark.parametrize("run", RUNS)
def test_windows_have_their_elements(run: str) -> None:
    rows = rows_of(snapshot(run, "windows.python-state-window-contents=bigint"), "windows.python-state-window-contents")
    found: dict[str, list[int]] = {}
    for row in rows.to_pylist():
        start = int(row["namespace"]["start"].timestamp())
        elements = found.setdefault(f"{row['key']['f0']} {start}", [])
        assert row["position"] == len(elements)
        elements.append(row["value"])
    assert found == {f"{key} {start}": numbers for key, start, numbers in truth(run)["windows"]}


@pytest.mark.parametrize("run", RUNS)
def test_keys_that_were_pickled_are_bytes(run: str) -> None:
    rows = rows_of(snapshot(run, "pickled.python-state-last=bigint"), "pickled.python-state-last").to_pylist()
    assert sorted(row["value"] for row in rows) == [57, 58, 59]
    assert all(row["key"]["f0"].startswith(b"\x80") for row in rows)


@pytest.mark.parametrize("run", RUNS)
def test_timers_have_their_keys(run: str) -> None:
    rows = rows_of(snapshot(run, OPTION), "python.event_user-timers").to_pylist()
    assert sorted((row["key"]["f0"], row["timestamp_ms"]) for row in rows) == sorted(
        (f"key-{number % 5}", 4_000_000_000_000 + number) for number in range(60)
    )


def test_values_without_a_type_are_the_bytes_of_each_bundle() -> None:
    source = source_at(next(place("heap").glob("savepoint-*")))
    rows = rows_of(source, "python.python-state-list-long")
    assert rows.schema.field("value").metadata[b"statestore.serializer"] == b"a coder of PyFlink"
    assert sum(len(each) for each in rows["value"].to_pylist()) == 8 * 60
    maps = rows_of(source, "python.python-state-by-day")
    assert {each[:4] for each in maps["map_key"].to_pylist()} == {b"\0\0\0\2"}


def test_a_state_without_a_type_says_which_option_gives_one() -> None:
    source = source_at(next(place("heap").glob("savepoint-*")))
    for state, example in (
        ("python.python-state-list-long", "bigint"),
        ("python.python-state-by-day", "map<string, bigint>"),
        ("rules.python-state-rules", "map<string, bigint>"),
    ):
        needed = source.info(state).facts["type_needed"]
        assert f"--type '{state}={example}', or pickle" in needed
        given = {"type": f"{state}={TYPES.get(state.rpartition('python-state-')[2], 'int')}"}
        named = source_at(next(place("heap").glob("savepoint-*")), given)
        assert "type_needed" not in named.info(state).facts


@pytest.mark.parametrize(
    ("state", "text", "error", "message"),
    [
        ("value-int", "bigint", CorruptError, "found 4 bytes left|within its bytes|before that of the value"),
        ("list-string", "bigint", CorruptError, "the end of the bytes of a value of PyFlink"),
        ("value-primitive_array", "array<int>", CorruptError, "state python.python-state-value-primitive_array: found"),
        ("by-number", BASKET, CorruptError, "4 bytes behind the value within its bytes of PyFlink, expected none"),
        ("kept-map", "string", CorruptError, "whose map_key is read as string, as no type is given for it: found"),
        ("value-tuple", "struct<a: int, b: int not null>", InvalidInputError, "only some fields are not null"),
        ("by-day", "map<string>", InvalidInputError, "map is written map<string,int>"),
    ],
)
def test_a_type_that_does_not_fit_is_refused_by_name(
    state: str, text: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        rows_of(snapshot("heap", f"python.python-state-{state}={text}"), f"python.python-state-{state}")
    assert f"state python.python-state-{state}" in str(caught.value)


def test_types_of_keys_and_values_of_a_map_are_given_apart() -> None:
    name = "python.python-state-kept-map"
    rows = rows_of(snapshot("heap", f"{name}.map_key=int;{name}.map_value=string"), name)
    assert set(rows["map_key"].to_pylist()) == {0, 1}
    assert rows["map_value"].type == "string"
    nested = "python.python-state-by-day"
    with pytest.raises(CorruptError, match="found"):  # as a type of the values alone, which are no maps
        rows_of(snapshot("heap", f"{nested}.map_value=map<string, int>"), nested)
