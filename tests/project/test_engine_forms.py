"""The files that ``benchmarks/engine_forms.py`` measures hold what they should, and it prints figures of them."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.parameters import mostly_slow

import statestore
from benchmarks import engine_forms
from benchmarks.engines import flink_forms, kafka_forms
from benchmarks.engines.flink_forms import DISTINCT, FORMS, WEEKDAYS, kryo_lines, note, tags
from benchmarks.engines.flink_snapshots import FIRST_KEY
from benchmarks.engines.kafka_forms import Records, item
from benchmarks.results.other_files import FILES, figures_of_lines


def uuid(number: int) -> Any:
    found = [each["value"] for each in kryo_lines() if each["class"] == "java.util.UUID" and "bytes" in each]
    return found[number % len(found)]


def entries(number: int) -> list[tuple[str, int]]:
    return [(each, number) for each in tags(number)]


def price(number: int) -> str:
    return f"{number * 7919 // 100}.{number * 7919 % 100:02d}"


def of_pojo(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"item {number}", "note": note(number), "score": number / 4}


def items(number: int) -> list[dict[str, Any]]:
    return [of_pojo(number + each) for each in range(number % 6)]


TRUTH: dict[str, Callable[[int], Any]] = {
    "POJO": of_pojo,
    "case class of Scala": lambda n: {"f0": n, "f1": f"item {n}", "f2": note(n), "f3": n / 4},
    "Row": lambda n: {"f0": note(n), "f1": n},
    "row of PyFlink": lambda n: {"f0": note(n), "f1": n},
    "list": tags,
    "list of Kryo": tags,
    "list of Kryo as JSON": lambda n: json.dumps(tags(n)),
    "list of POJOs": items,
    "objects of Kryo": items,
    "map": entries,
    "map of Kryo": entries,
    "decimal": price,
    "decimal of Kryo": price,
    "text of a UUID": lambda n: f"{n:08x}-0000-4000-8000-{n * 7919:012x}",
    "UUID of Kryo": uuid,
    "Duration of Kryo": lambda n: datetime.timedelta(seconds=n, microseconds=n * 79),
    "FiniteDuration of Kryo": lambda n: datetime.timedelta(seconds=n),
    "text of a name": lambda n: WEEKDAYS[n % 7],
    "Enumeration of Kryo": lambda n: WEEKDAYS[n % 7],
    "text of an address": lambda n: f"host-{n}.shop.example:{n + 1024}",
    "InetSocketAddress of Kryo": lambda n: f"host-{n}.shop.example:{n + 1024}",
}


def rows_of(place: Path, **options: str) -> list[dict[str, Any]]:
    found = statestore.inspect(place, **options)
    (name,) = found.tables()
    rows: list[dict[str, Any]] = found.table(name).scan().read_all().to_pylist()
    return rows


def as_written(name: str, value: Any) -> Any:
    return json.dumps(json.loads(value)) if name.endswith("JSON") else value


@pytest.mark.parametrize("name", mostly_slow(list(FORMS), ["case class of Scala"]))
def test_states_of_flink_have_the_values_of_their_form(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    rows = rows_of(flink_forms.savepoint(tmp_path / "once", form, DISTINCT), **form.options)
    found = {row["key"] - FIRST_KEY: as_written(name, row["value"]) for row in rows}
    assert found == {number: TRUTH[name](number) for number in range(DISTINCT)}


@pytest.mark.slow
def test_other_snapshots_of_flink_have_the_rows_of_the_savepoint(tmp_path: Path) -> None:
    pojo = FORMS["POJO"]

    def values(place: Path) -> dict[int, Any]:
        return {row["key"] - FIRST_KEY: row["value"] for row in rows_of(place)}

    whole = {number: TRUTH["POJO"](number) for number in range(DISTINCT)}
    assert values(flink_forms.savepoint(tmp_path / "old", pojo, DISTINCT, version=2)) == whole
    assert values(flink_forms.savepoint(tmp_path / "second", pojo, DISTINCT, second=True)) == whole
    removed = {number_of(each.key) for group in flink_forms.entries(pojo.value) for each in group[::33]}
    kept = {number: value for number, value in whole.items() if number not in removed}
    assert values(flink_forms.native(tmp_path / "native", pojo, DISTINCT)) == kept
    assert values(flink_forms.native(tmp_path / "forst", pojo, DISTINCT, second=True)) == kept
    assert values(flink_forms.logged(tmp_path / "logged", pojo, DISTINCT * 2)) == kept


def number_of(stored: bytes) -> int:
    return int.from_bytes(stored[:8], "big") - FIRST_KEY


def newest(records: Records) -> dict[str, str]:
    found = {}
    for key, value in zip(records.keys.to_pylist(), records.texts.to_pylist(), strict=True):
        found[key] = value
    return {key: value for key, value in found.items() if value is not None}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::statestore.StateStoreWarning")
@pytest.mark.parametrize("write", [kafka_forms.parquet, kafka_forms.json_lines, kafka_forms.kcat, kafka_forms.console])
def test_exports_have_the_newest_values(write: Callable[[Path, Records], Path], tmp_path: Path) -> None:
    records = Records(3000, kafka_forms.json_text)
    write(tmp_path / "topic", records)
    found = rows_of(tmp_path / "topic", key_serde="string", value_serde="string")
    assert {row["key"]: row["value"] for row in found} == newest(records)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::statestore.StateStoreWarning")
@pytest.mark.parametrize("write", [kafka_forms.connect_json, kafka_forms.connect_avro, kafka_forms.connect_parquet])
def test_files_of_sinks_have_the_same_rows(write: Callable[[Path, Records], Path], tmp_path: Path) -> None:
    records = Records(1000, kafka_forms.json_text, deletes=False)
    write(tmp_path / "topic", records)
    found = rows_of(tmp_path / "topic", key_serde="string", value_serde="json", record_columns="key=name")
    keys = records.keys.to_pylist()
    expected = {keys[n]: {**item(n), "name": keys[n], "note": f"note {n}" if n % 4 else None} for n in range(1000)}
    assert {row["key"]: json.loads(row["value"]) for row in found} == expected


def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[str]:
    monkeypatch.setattr(sys, "argv", ["engine_forms.py", "--quick", *arguments])
    engine_forms.main()
    return capsys.readouterr().out.splitlines()


def test_a_figure_is_printed_as_a_line_and_in_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (figure,) = figures_of_lines("engine_forms.py", printed(capsys, monkeypatch, "--only", "spark"))
    assert (figure.name, figure.goal) == ("Spark: types that are given / a schema file", engine_forms.GOAL)
    assert figure.details["cells"][0] == figure.details["cells"][1]
    table = printed(capsys, monkeypatch, "--only", "spark", "--table")
    assert [line.count("|") for line in table] == [6, 6, 6]
    assert "engine_forms.py" in FILES


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "named"), [("verification", "All"), ("kafka", "Kafka"), ("flink", "Flink")])
def test_all_forms_are_measured(
    engine: str, named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = list(figures_of_lines("engine_forms.py", printed(capsys, monkeypatch, "--only", engine)))
    assert {figure.name.partition(":")[0] for figure in figures} == {named}
    assert len({figure.name for figure in figures}) == len(figures) > 1
