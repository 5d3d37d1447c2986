"""Files that the writers of Aiven's sinks have written, copied under the name of their topic."""

from __future__ import annotations

import gzip
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.paths import DATA

import statestore
from statestore.formats.errors import InvalidInputError

TOPIC = "shop-prices-changelog"
COLUMNS = "key=key,value=value,offset=offset,timestamp=timestamp"
TEXT = "key=utf-8,value=base64"
SERDES = {"key_serde": "string", "value_serde": "string"}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    shutil.unpack_archive(DATA / "kafka" / "aiven.tar.xz", tmp_path)
    return tmp_path / "aiven"


def at(number: int) -> datetime:
    return datetime(2024, 5, 1, 8, tzinfo=UTC) + timedelta(milliseconds=number)


def record(number: int) -> tuple[str, str | None, datetime, int]:
    """Files that AivenFiles has written."""
    return f"ké{number % 5}", None if number % 7 == 6 else f'vé,"{number}', at(number), 100 + number


def alone(written: Path, end: str, under: Path) -> Path:
    under.mkdir()
    shutil.copy(written / f"{TOPIC}.{end}", under / f"{TOPIC}.{end.removeprefix('values.')}")
    return under


@pytest.mark.parametrize("end", ["jsonl.gz", "json.zst"])
def test_records_are_those_of_the_topic(end: str, written: Path, tmp_path: Path) -> None:
    """Texts of keys are themselves, those of values base64; deletions, times and offsets are there."""
    folder = alone(written, end, tmp_path / "export")
    found = statestore.inspect(folder, record_columns=COLUMNS, record_text=TEXT, **SERDES).table(TOPIC)
    records = [record(number) for number in range(40)]
    newest = {key: (value, time, offset) for key, value, time, offset in records}
    rows = found.scan().read_all().to_pylist()
    assert {row["key"]: (row["value"], row["timestamp"], row["changelog_offset"]) for row in rows} == {
        key: row for key, row in newest.items() if row[0] is not None
    }
    history = found.history().read_all().to_pylist()
    assert {(row["key"], row["value"], row["valid_from"], row["changelog_offset"]) for row in history} == {
        each for each in records if each[1] is not None
    }
    assert [row["valid_to"] for row in history if row["changelog_offset"] == 101] == [at(6)], "record 6 deletes its key"


def test_one_encoding_of_both_is_refused_or_shows_base64(written: Path, tmp_path: Path) -> None:
    folder = alone(written, "jsonl.gz", tmp_path / "export")
    with pytest.raises(InvalidInputError, match="in column key, expected base64"):
        statestore.inspect(folder, record_columns=COLUMNS, record_text="base64", **SERDES).table(TOPIC).scan()
    shown = statestore.inspect(folder, record_columns=COLUMNS, **SERDES).table(TOPIC).scan().read_all()
    lines = gzip.decompress((written / f"{TOPIC}.jsonl.gz").read_bytes()).splitlines()
    assert set(shown["value"].to_pylist()) <= {json.loads(line)["value"] for line in lines}


def test_encodings_of_keys_alone_do_not_mix_up_the_columns(tmp_path: Path) -> None:
    (tmp_path / f"{TOPIC}.csv").write_text("k,v,t\n6b31,djE=,1714550400000\n")
    options: Any = {"record_columns": "key=k,value=v,timestamp=t", "record_text": "key=hex, value=base64", **SERDES}
    row = statestore.inspect(tmp_path, **options).table(TOPIC).scan().read_all().to_pylist()[0]
    assert (row["key"], row["value"]) == ("k1", "v1")


def test_texts_of_keys_of_kafka_connect_may_have_another_encoding(tmp_path: Path) -> None:
    folder = tmp_path / "topics" / "shop" / "partition=0"
    folder.mkdir(parents=True)
    (folder / "shop+0+0000000000.json").write_text('"djE="\n')
    (folder / "shop+0+0000000000.keys.json").write_text('"6b31"\n')
    found = statestore.inspect(tmp_path, record_text="key=hex,value=base64", **SERDES).table("shop")
    assert [(row["key"], row["value"]) for row in found.scan().read_all().to_pylist()] == [("k1", "v1")]


@pytest.mark.parametrize("text", ["key=utf-8", "key=utf-8,value=utf-16", "value=hex,key=hex", "key=,value=hex"])
def test_other_encodings_are_refused(text: str, written: Path, tmp_path: Path) -> None:
    folder = alone(written, "jsonl.gz", tmp_path / "export")
    with pytest.raises(InvalidInputError, match=r"INVALID_OPTION.*recordText.*key=ONE,value=ONE where they differ"):
        statestore.inspect(folder, record_columns=COLUMNS, record_text=text, **SERDES).table(TOPIC).scan()


def test_values_alone_are_refused(written: Path, tmp_path: Path) -> None:
    folder = alone(written, "values.jsonl", tmp_path / "export")
    with pytest.raises(InvalidInputError, match=r"KAFKA_RECORDS.*a value alone does not say what it replaces"):
        statestore.inspect(folder, record_columns=COLUMNS, record_text=TEXT, **SERDES).table(TOPIC).scan()


def test_csv_with_unmarked_commas_is_refused(written: Path, tmp_path: Path) -> None:
    folder = alone(written, "csv", tmp_path / "export")
    (folder / f"{TOPIC}.csv").rename(folder / f"{TOPIC}.txt")
    order = {"record_columns": "key,value,offset,timestamp,_", "record_separator": ","}
    with pytest.raises(InvalidInputError, match="found 6 fields"):
        statestore.inspect(folder, record_text=TEXT, **order, **SERDES).table(TOPIC).scan()
