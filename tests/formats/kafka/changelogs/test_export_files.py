"""Exports by kcat, kafka-console-consumer, rpk and others are the records of the topic; what they lack is unknown."""

from __future__ import annotations

import gzip
import json
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest
from support.paths import DATA

import statestore
from statestore.formats.error_codes import ErrorCode

TOPIC = "shop-counts-changelog"
FIRST = 1_714_550_400_000
VALUES = [b'{"n": %d}' % n for n in range(12)]
VALUES[5] = b"\x01\xffv"
PRINTED = [
    {"key": b"k%d" % (n % 4), "value": None if n == 7 else VALUES[n], "timestamp": FIRST + n}
    | {"partition": n % 2, "offset": n // 2}
    for n in range(12)
]
"""The records that PrintRecords prints."""
LIVE = {b"k0": VALUES[8], b"k1": VALUES[9], b"k2": VALUES[10], b"k3": VALUES[11]}
COLUMNS = {"record_columns": "key=k,value=v,timestamp=t,partition=p,offset=o"}


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports")
    with tarfile.open(DATA / "kafka" / "exports.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "exports"


def placed(folder: Path, content: bytes, suffix: str) -> Path:
    (folder / f"{TOPIC}{suffix}").write_bytes(content)
    return folder


def rows(folder: Path, **options: Any) -> list[dict[str, Any]]:
    """The rows of the store, by key; keys and values are bytes."""
    table = statestore.inspect(folder, key_serde="bytes", value_serde="bytes", **options).table(TOPIC)
    found: list[dict[str, Any]] = table.scan().read_all().to_pylist()
    return sorted(found, key=lambda row: bytes(row["key"]))


def notices(folder: Path, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        rows(folder, **options)
    return [str(each.message) for each in seen]


def quiet(folder: Path, **options: Any) -> list[dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rows(folder, **options)


def live(folder: Path, **options: Any) -> dict[bytes, bytes]:
    return {row["key"]: row["value"] for row in quiet(folder, **options)}


def test_kcat_keeps_every_byte(tmp_path: Path, exports: Path) -> None:
    """kcat writes bytes that are no UTF-8 into its texts as they are. A record without a key is no row."""
    placed(tmp_path, (exports / "kcat.jsonl").read_bytes(), ".jsonl")
    assert notices(tmp_path) == []
    found = rows(tmp_path)
    assert {row["key"]: (row["value"], row["changelog_offset"], row["partition_id"]) for row in found} == {
        b"k0": (b'{"n": 0}', 0, 0),
        b"k1": (b"v\x01tab\there\xff\xfe\xc3\xa9", 1, 0),
        b'q"\\/': (b"back\\slash/\x7f", 4, 0),
    }
    assert all(row["timestamp"].timestamp() == 1_795_968_556.41 for row in found)


def test_kcat_headers_are_names_and_values_in_turn(tmp_path: Path, exports: Path) -> None:
    placed(tmp_path, (exports / "kcat.jsonl").read_bytes(), ".jsonl")
    found = rows(tmp_path, kind="headers-key-value")
    assert [(h["name"], h["value"]) for h in found[0]["headers"]] == [("a", b"1,2"), ("b", b"x")]


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".txt.zst"])
def test_console_consumer_with_all_its_fields(tmp_path: Path, exports: Path, suffix: str) -> None:
    content = (exports / "console.txt").read_bytes()
    if suffix.endswith(".gz"):
        content = gzip.compress(content[:300]) + gzip.compress(content[300:])
    elif suffix.endswith(".zst"):
        content = pa.Codec("zstd").compress(content, asbytes=True)
    placed(tmp_path, content, suffix)
    newest: dict[Any, Any] = {record["key"]: record for record in PRINTED}
    assert [
        (row["key"], row["value"], round(row["timestamp"].timestamp() * 1000), row["partition_id"])
        for row in quiet(tmp_path)
    ] == [(key, r["value"], r["timestamp"], r["partition"]) for key, r in sorted(newest.items())]
    assert [row["changelog_offset"] for row in quiet(tmp_path)] == [newest[key]["offset"] for key in sorted(newest)]
    (notice,) = notices(tmp_path)
    assert "1 records have a key or value that is the text null" in notice
    table = statestore.inspect(tmp_path, key_serde="bytes", value_serde="bytes").table(TOPIC)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        past = table.history(key=b"k1").read_all().to_pylist()
    assert sorted(row["value"] for row in past) == sorted((VALUES[1], VALUES[5], VALUES[9]))


def test_what_a_console_export_lacks_is_unknown(tmp_path: Path, exports: Path) -> None:
    placed(tmp_path, (exports / "console-places.txt").read_bytes(), ".txt")
    found = quiet(tmp_path)
    assert {row["key"]: row["value"] for row in found} == LIVE
    assert {row["changelog_offset"] for row in found} == {None} and {row["partition_id"] for row in found} == {0, 1}


def test_fields_are_named_in_their_order(tmp_path: Path, exports: Path) -> None:
    placed(tmp_path, (exports / "console-keys.txt").read_bytes(), ".txt")
    with pytest.raises(statestore.InvalidInputError, match=r"KAFKA_RECORDS.*option recordColumns"):
        rows(tmp_path)
    options = {"record_columns": "key,value", "record_separator": "|", "record_null": "NULL"}
    assert notices(tmp_path, **options) == []
    found = rows(tmp_path, **options)
    assert {row["key"]: row["value"] for row in found} == LIVE
    assert {(row["timestamp"], row["changelog_offset"], row["partition_id"]) for row in found} == {(None,) * 3}
    table = statestore.inspect(tmp_path, **options).table(TOPIC)
    questions: list[Callable[[], Any]] = [
        lambda: table.history(key="k1").read_all(),
        lambda: table.scan(as_of=FIRST).read_all(),
    ]
    for question in questions:
        with pytest.raises(statestore.NotFoundError, match=r"TIME_NOT_KEPT.*without a timestamp"):
            question()
    with pytest.raises(statestore.InvalidInputError, match=r"KAFKA_RECORDS.*versioned"):
        rows(tmp_path, kind="versioned", retention=10_000, **options)
    with pytest.raises(statestore.InvalidInputError, match=r"KAFKA_RECORDS.*untilTime"):
        rows(tmp_path, until_time="2024-05-01T08:00:00Z", **options)


RPK = [
    {"topic": TOPIC, "key": "k0", "value": '{"n": 0}', "timestamp": FIRST, "partition": 0, "offset": 0},
    {"topic": TOPIC, "key": "k1", "value": "a\ufffd\n}", "timestamp": FIRST + 1, "partition": 0, "offset": 1},
    {"topic": TOPIC, "key": "12", "value": "34", "timestamp": FIRST + 2, "partition": 0, "offset": 2},
    {"topic": TOPIC, "key": "k0", "timestamp": FIRST + 3, "partition": 0, "offset": 3},
]
"""Records as rpk prints them: what is empty or null is left out, and U+FFFD stands for other bytes."""


def test_rpk_over_several_lines_and_in_one(tmp_path: Path) -> None:
    wanted = {b"k1": "a\ufffd\n}".encode(), b"12": b"34"}
    placed(tmp_path, "".join(json.dumps(row, indent=2) + "\n" for row in RPK).encode(), ".json")
    assert live(tmp_path) == wanted
    replaced, left_out = notices(tmp_path)
    assert "1 records have U+FFFD" in replaced and "1 records have a key or value that is left out" in left_out
    placed(tmp_path, "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in RPK).encode(), ".json")
    with pytest.raises(statestore.InvalidInputError, match=r"MISSING_OPTION.*option recordText"):
        rows(tmp_path)  # 12 and 34 may be hexadecimal
    assert live(tmp_path, record_text="utf-8") == wanted


def others(folder: Path, suffix: str) -> Path:
    """Records under other names, as consoles export them."""
    table = pa.table(
        {
            "p": [0, 0, 0],
            "o": [0, 1, 2],
            "t": [FIRST, FIRST + 1, FIRST + 2],
            "k": ["a", "b", "a"],
            "v": ['x,"\n', "y", None],
        }
    )
    path = folder / f"{TOPIC}{suffix}"
    if suffix == ".parquet":
        pq.write_table(table, path)
    elif suffix == ".csv":
        pv.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return folder


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv"])
def test_columns_of_others_are_mapped(tmp_path: Path, suffix: str) -> None:
    folder = others(tmp_path, suffix)
    with pytest.raises(statestore.InvalidInputError, match=r"KAFKA_RECORDS.*option recordColumns"):
        rows(folder)
    options = COLUMNS | ({"record_null": ""} if suffix == ".csv" else {})
    assert live(folder, **options) == {b"b": b"y"}
    assert live(folder, until_offset="1", **options) == {b"a": b'x,"\n', b"b": b"y"}
    with pytest.raises(statestore.InvalidInputError, match="expected a column x"):
        rows(folder, **{**options, "record_columns": f"{COLUMNS['record_columns']},headers=x"})


def test_an_empty_field_of_csv_is_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(statestore.InvalidInputError, match=r"row 2: found an empty v, which may be null"):
        rows(others(tmp_path, ".csv"), **COLUMNS)


def test_offsets_need_their_partition(tmp_path: Path) -> None:
    lines = [{"key": "a", "payload": "b", "offset": 4}] * 2
    placed(tmp_path, "".join(json.dumps(row) + "\n" for row in lines).encode(), ".jsonl")
    with pytest.raises(statestore.InvalidInputError, match="offset 4 twice and no column partition"):
        rows(tmp_path, record_columns="value=payload")


REFUSED: list[Any] = [
    (".txt", b"k0: v0\n", "KAFKA_RECORDS", "kcat -J in place of kcat -f"),
    (".txt", b"CreateTime:1\tNO_HEADERS\tv\n", "KAFKA_RECORDS", "do not say what they are"),
    (".txt", b"CreateTime:1\tk\tv\tw\n", "KAFKA_RECORDS", "do not say what they are"),
    (".txt", b"CreateTime:1\tk\tv\nCreateTime:2\tk\tv\nw\n", "KAFKA_RECORDS", "line 3: found 1 fields"),
    (".txt", b"CreateTime:1\tk\tv\nCreate:2\tk\tv\n", "KAFKA_RECORDS", "line 2: found 'Create:2' as timestamp"),
    (".txt", b"CreateTime:1\tk\tv\nCreateTime:2\tk\tv", "FILE_DAMAGED", "ends within line 2"),
    (".jsonl", b'{"topic":"t","partition":0,"offset":0,"ts":1,"key":7,"payload":"v"}\n', "KAFKA_RECORDS", "without -s"),
    (
        ".jsonl.gz",
        gzip.compress(b'{"key":"61","value":"62","timestamp":1}\n' * 99, mtime=0)[:-12],
        "FILE_DAMAGED",
        "gzip",
    ),
    (".jsonl.gz", b'{"key":"61","value":"62","timestamp":1}\n', "FILE_DAMAGED", "gzip"),
]


@pytest.mark.parametrize(("suffix", "content", "code", "message"), REFUSED)
def test_other_files_are_refused(tmp_path: Path, suffix: str, content: bytes, code: str, message: str) -> None:
    with pytest.raises(statestore.StateStoreError, match=message) as error:
        rows(placed(tmp_path, content, suffix))
    assert error.value.code == ErrorCode(code) and f"{TOPIC}{suffix}" in str(error.value)


@pytest.mark.parametrize("options", ["value", "value=payload,value=x", "time=ts", "value="])
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: str) -> None:
    with pytest.raises(statestore.InvalidInputError, match=r"INVALID_OPTION.*recordColumns"):
        rows(placed(tmp_path, b"{}\n", ".jsonl"), record_columns=options)


@pytest.mark.parametrize("name", ["kcat.jsonl", "console.txt", "console-places.txt"])
def test_damaged_exports_are_errors_or_rows(tmp_path: Path, exports: Path, name: str) -> None:
    """Each cut, and a byte in every 61st place: rows, or an error of ours."""
    content = (exports / name).read_bytes()
    suffix = Path(name).suffix
    for at in range(0, len(content), 61):
        for damaged in (content[:at], content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :]):
            try:
                quiet(placed(tmp_path, damaged, suffix))
            except statestore.StateStoreError as error:
                assert TOPIC in str(error) or "partition" in str(error), error
