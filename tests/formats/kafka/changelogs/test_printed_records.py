"""What real tools printed of real topics are the records that the broker had; what they lost is refused or noticed.

The topics have keys and values that are null, empty, no UTF-8, or hold separators and line breaks, and such headers.
"""

from __future__ import annotations

import base64
import json
import random
import tarfile
from pathlib import Path
from typing import Any

import pytest
from support.paths import DATA

import statestore
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError
from statestore.formats.kafka.changelogs.export_forms import RecordOptions
from statestore.formats.kafka.changelogs.file_records import record_files

LINES = {"null": "<none>"}
Row = dict[str, Any]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("printed")
    with tarfile.open(DATA / "kafka" / "exports.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "exports"


def records(printed: Path, topic: str) -> list[Row]:
    """The records of a topic, as a consumer of the same broker had them."""
    found: list[Row] = json.loads((printed / "records.json").read_text())[topic]
    return found


def read(path: Path, **options: str) -> list[Row]:
    """The records of a file in the form of `records`, in order of partition and offset."""
    found = []
    for log in record_files(path, options=RecordOptions(**options)):
        for batch in log.read():
            found += batch.batch().to_pylist()
    for row in found:
        for name in ("key", "value"):
            row[name] = None if row[name] is None else row[name].hex()
        if row["headers"] is not None:
            row["headers"] = [[h["name"], None if h["value"] is None else h["value"].hex()] for h in row["headers"]]
    return found


def without_headers(rows: list[Row]) -> list[Row]:
    return [{**row, "headers": None} for row in rows]


@pytest.mark.parametrize("topic", ["bytes", "texts"])
def test_kcat_loses_nothing(printed: Path, topic: str) -> None:
    """No key, value, null or header; a record without the field has no headers."""
    assert read(printed / f"{topic}-kcat.jsonl") == records(printed, topic)


@pytest.mark.parametrize(
    ("name", "options"),
    [("all", {}), ("delivery", {}), ("separated", {"separator": " || "})],
)
def test_console_consumer_prints_all_but_headers(printed: Path, name: str, options: dict[str, str]) -> None:
    found = read(printed / f"lines-{name}.txt", **LINES, **options)
    assert without_headers(found) == without_headers(records(printed, "lines"))
    for row, record in zip(found, records(printed, "lines"), strict=True):
        assert row["headers"] is None if record["headers"] or name == "delivery" else row["headers"] == []


def test_an_empty_field_may_be_a_null(printed: Path) -> None:
    """kcat -f prints a null as nothing."""
    fields = {"columns": "timestamp,partition,offset,key,value", "separator": " "}
    with pytest.raises(statestore.InvalidInputError, match=r"KAFKA_RECORDS.*found an empty value, which may be null"):
        read(printed / "keyed-kcat.txt", **fields)
    wanted = [{**row, "value": row["value"] or None} for row in without_headers(records(printed, "keyed"))]
    assert read(printed / "keyed-kcat.txt", **fields, null="") == wanted


def test_sizes_tell_the_records_of_a_log_dump(printed: Path) -> None:
    """Line breaks, separators and words of the dump within keys and values, and within headers, whose values it has
    not."""
    assert read(printed / "texts-dump.txt") == without_headers(records(printed, "texts"))


def test_a_dump_of_bytes_that_are_no_text_is_refused(printed: Path) -> None:
    with pytest.raises(statestore.InvalidInputError, match=r"KAFKA_RECORDS.*only bytes of UTF-8.*kcat -J"):
        read(printed / "bytes-dump.txt")


HEAD = b"baseOffset: 0 lastOffset: 0 count: 1 isTransactional: false isControl: false\n"
RECORD = b"| offset: 0 CreateTime: 5 keySize: 1 valueSize: 1 sequence: -1 headerKeys: [] key: k payload: v\n"


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (HEAD.replace(b"Transactional: false", b"Transactional: true") + RECORD, "KAFKA_RECORDS", "aborted"),
        (HEAD + RECORD.replace(b" key: k payload: v", b""), "KAFKA_RECORDS", "--print-data-log"),
        (HEAD + RECORD.replace(b"payload: v", b"payload: xy"), "KAFKA_RECORDS", "in the sizes"),
        (HEAD + RECORD.replace(b"payload: v", b"payload: x\n| offset: 9"), "KAFKA_RECORDS", "found '. offset: 9"),
        (HEAD + RECORD + b"| offset: x\n", "KAFKA_RECORDS", "expected offset, CreateTime"),
        (b"Dumping a-0/0.log\n" + RECORD + b"Dumping b\n" + RECORD, "KAFKA_RECORDS", "TOPIC-PARTITION"),
        (HEAD + RECORD[:-1], "FILE_DAMAGED", "ends within a line"),
    ],
)
def test_other_dumps_are_refused(tmp_path: Path, content: bytes, code: str, message: str) -> None:
    (tmp_path / "t.txt").write_bytes(content)
    with pytest.raises(StateStoreError, match=message) as error:
        read(tmp_path / "t.txt")
    assert error.value.code == ErrorCode(code)


@pytest.mark.parametrize("name", ["texts-dump.txt", "saved.json"])
def test_damaged_files_are_errors_or_rows(tmp_path: Path, printed: Path, name: str) -> None:
    content = saved(records(printed, "bytes"), raw=True) if name == "saved.json" else (printed / name).read_bytes()
    chance = random.Random(3)
    path = tmp_path / name
    for at in range(0, len(content), max(1, len(content) // 60)):
        for damaged in (content[:at], content[:at] + chance.randbytes(1) + content[at + 1 :]):
            path.write_bytes(damaged)
            try:
                read(path)
            except StateStoreError as error:
                assert error.code in (ErrorCode.KAFKA_RECORDS, ErrorCode.FILE_DAMAGED, ErrorCode.MISSING_OPTION)


def message(record: Row, *, raw: bool) -> Row:
    """A record as Redpanda Console saves it."""

    def payload(digits: str | None) -> Row:
        data = bytes.fromhex(digits or "")
        found: Row = {"isPayloadNull": digits is None, "schemaId": 0, "size": len(data)}
        try:
            found |= {"payload": data.decode(), "encoding": "text"}
        except UnicodeDecodeError:
            found |= {"payload": data.hex(), "encoding": "binary"}
        if data.startswith(b"{"):
            found |= {"payload": {"n": 1}, "encoding": "json"}
        return found | ({"rawPayload": base64.b64encode(data).decode()} if raw else {})

    places = {"partitionID": record["partition"], "offset": record["offset"], "timestamp": record["timestamp"]}
    headers = [{"key": name, "value": payload(value)} for name, value in record["headers"]]
    cells = {"key": payload(record["key"]), "value": payload(record["value"])}
    return {**places, "compression": "none", "isTransactional": False, "headers": headers, **cells}


def saved(found: list[Row], *, raw: bool) -> bytes:
    return json.dumps([message(each, raw=raw) for each in found], indent=4, ensure_ascii=False).encode()


def test_messages_of_redpanda_console_with_raw_data(tmp_path: Path, printed: Path) -> None:
    (tmp_path / "t.json").write_bytes(saved(records(printed, "bytes"), raw=True))
    assert read(tmp_path / "t.json") == without_headers(records(printed, "bytes"))


def test_messages_of_redpanda_console_without_raw_data(tmp_path: Path, printed: Path) -> None:
    """Texts are known to be the bytes of the topic; what was decoded is refused."""
    found = records(printed, "texts")
    texts = [each for each in found if not (each["value"] or "").startswith(b"{".hex())]
    (tmp_path / "t.json").write_bytes(saved(texts, raw=False))
    assert read(tmp_path / "t.json") == without_headers(texts)
    (tmp_path / "t.json").write_bytes(saved(found, raw=False))
    with pytest.raises(statestore.InvalidInputError, match=r"KAFKA_RECORDS.*expected the value with rawPayload"):
        read(tmp_path / "t.json")


@pytest.mark.parametrize("raw", ["", "YQ", "?", None, 1])
def test_messages_without_their_bytes_are_refused(tmp_path: Path, raw: Any) -> None:
    """Console leaves out what is too large to be shown."""
    record = {"partition": 0, "offset": 1, "timestamp": 5, "headers": [], "key": "6b", "value": "6162"}
    found = message(record, raw=True)
    found["value"] |= {"rawPayload": raw, "payload": None}
    (tmp_path / "t.json").write_text(json.dumps([found]))
    with pytest.raises(statestore.InvalidInputError, match=r"KAFKA_RECORDS.*element 1: .*raw data included"):
        read(tmp_path / "t.json")


def test_json_of_kafka_ui_is_recognised(tmp_path: Path) -> None:
    rows = [
        {"Value": value, "Offset": n, "Key": "k\u00e9", "Partition": 0, "Headers": {"h": "1"}, "Timestamp": time}
        for n, (value, time) in enumerate(
            [("a\n,", "2024-05-01T08:00:00.001Z"), ("", "2024-05-01T08:00:00Z"), (None, "2024-05-01T08:00:01.5Z")]
        )
    ]
    (tmp_path / "t.json").write_text(json.dumps(rows, indent="\t"))
    found = [(row["key"], row["value"], row["offset"], row["timestamp"]) for row in read(tmp_path / "t.json")]
    key, first = "k\u00e9".encode().hex(), 1_714_550_400_000
    assert found == [(key, b"a\n,".hex(), 0, first + 1), (key, "", 1, first), (key, None, 2, first + 1500)]


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("timestamp,partitionID,offset,key,value,keySize,valueSize,compression", "save JSON with raw data"),
        ("Value,Offset,Key,Partition,Headers,Timestamp", "export JSON"),
    ],
)
def test_csv_that_has_lost_bytes_is_refused(tmp_path: Path, line: str, remedy: str) -> None:
    (tmp_path / "t.csv").write_text(f"{line}\n")
    with pytest.raises(statestore.InvalidInputError, match=rf"KAFKA_RECORDS.*{remedy}"):
        read(tmp_path / "t.csv", columns="key=key,value=value")
