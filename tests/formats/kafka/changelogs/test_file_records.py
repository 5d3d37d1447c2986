"""Records from Arrow, Parquet and JSON lines files of every accepted form, and refusals of the others."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from support.kafka.log_files import as_json, json_rows, unpacked
from support.kafka.made_logs import random_records

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, NotFoundError, StateStoreError
from statestore.formats.kafka.changelogs.file_records import file_records, record_files
from statestore.formats.kafka.changelogs.records import RECORDS

PARTITIONS = 3


def rows(seed: int = 3) -> list[dict[str, Any]]:
    """Records of three partitions, in the order of partition and offset."""
    found = [record.row(part) for part in range(PARTITIONS) for record in random_records(seed + part, gaps=True)]
    assert len(found) > 40
    return found


def read(path: Any, **options: Any) -> list[dict[str, Any]]:
    return [row for batch in file_records(path, **options) for row in batch.to_pylist()]


def write(path: Path, table: pa.Table) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=13)
    elif path.suffix == ".feather":
        feather.write_feather(table, path, chunksize=13)
    elif path.suffix == ".arrows":
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table, 13)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, 13)
    return path


def write_json(path: Path, found: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
    return path


SUFFIXES = (".parquet", ".feather", ".arrow", ".arrows")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_form_of_file_gives_the_records(tmp_path: Path, suffix: str) -> None:
    wanted = rows()
    assert read(write(tmp_path / f"r{suffix}", pa.Table.from_pylist(wanted, RECORDS))) == wanted
    shuffled = sorted(wanted, key=lambda row: (int(row["offset"]) * 7 % 11, int(row["partition"])))
    assert read(write(tmp_path / f"s{suffix}", pa.Table.from_pylist(shuffled, RECORDS))) == wanted


@pytest.mark.parametrize(
    "kinds",
    [
        {"key": pa.large_binary(), "value": pa.dictionary(pa.int32(), pa.binary()), "offset": pa.uint64()},
        {"timestamp": pa.timestamp("ms", "UTC"), "partition": pa.int64(), "key": pa.binary_view()},
        {"timestamp": pa.timestamp("us", "Asia/Tokyo"), "offset": pa.int32()},
    ],
)
def test_other_types_of_the_columns(tmp_path: Path, kinds: dict[str, pa.DataType]) -> None:
    wanted = rows()
    table = pa.Table.from_pylist(wanted, RECORDS)
    for name, kind in kinds.items():
        column = table.column(name)
        column = column.cast(pa.timestamp("ms")) if pa.types.is_timestamp(kind) else column
        column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    suffix = ".arrow" if pa.binary_view() in kinds.values() else ".parquet"
    assert read(write(tmp_path / f"r{suffix}", table)) == wanted


def test_headers_as_spark_names_them(tmp_path: Path) -> None:
    wanted = rows()
    headers = [[{"key": h["name"], "value": h["value"]} for h in row["headers"]] for row in wanted]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.Table.from_pylist(wanted, RECORDS)
    table = table.set_column(5, "headers", pa.array(headers, kind))
    assert read(write(tmp_path / "r.parquet", table)) == wanted


@pytest.mark.parametrize("encoding", ["hex", "base64", "utf-8"])
@pytest.mark.parametrize("pairs", [True, False])
def test_bytes_as_text_in_a_named_encoding(tmp_path: Path, encoding: Any, pairs: bool) -> None:
    def text(data: bytes | None) -> str | None:
        if data is None:
            return None
        return {"hex": data.hex(), "base64": base64.b64encode(data).decode(), "utf-8": data.decode()}[str(encoding)]

    def headers(row: dict[str, Any]) -> list[Any]:
        each = [(h["name"], text(h["value"])) for h in row["headers"]]
        return [list(pair) for pair in each] if pairs else [{"name": name, "value": value} for name, value in each]

    wanted = rows()
    lines = [
        {**row, "key": text(row["key"]), "value": text(row["value"]), "headers": headers(row), "more": {"value": 1}}
        for row in wanted
    ]
    assert read(write_json(tmp_path / "r.jsonl", lines), encoding=encoding) == wanted


def test_changelogs_of_a_real_application_as_json(tmp_path: Path) -> None:
    folder = unpacked("ledger", tmp_path)
    seen = 0
    for file in sorted((folder / "changelog").glob("*.jsonl")):
        wanted = json_rows(file)
        assert [as_json(row) for row in read(file)] == wanted
        seen += len(wanted)
    assert seen > 500


def test_text_in_another_encoding_names_the_row(tmp_path: Path) -> None:
    lines = [{"key": "6b", "value": value, "timestamp": 1, "offset": n} for n, value in enumerate(["00", None, "kiwi"])]
    file = write_json(tmp_path / "r.jsonl", lines)
    with pytest.raises(InvalidInputError, match="row 2: found 'kiwi' in column value, expected hex") as error:
        read(file)
    assert error.value.code == ErrorCode.KAFKA_RECORDS
    assert [row["value"] for row in read(file, encoding="utf-8")] == [b"00", None, b"kiwi"]


def test_odd_digits_and_spaces_are_not_hex(tmp_path: Path) -> None:
    for text in ("abc", "ab cd", " ab", "0x"):
        file = write_json(tmp_path / "r.jsonl", [{"key": text, "value": "00", "timestamp": 1}] * 2)
        with pytest.raises(InvalidInputError, match="column key, expected hex"):
            read(file)


def test_files_of_a_folder_are_ordered_by_offset(tmp_path: Path) -> None:
    wanted = rows()
    for number in range(4):
        part = [row for row in wanted if int(row["offset"]) % 4 == number]
        table = pa.Table.from_pylist(part, RECORDS)
        write(tmp_path / f"{number}{SUFFIXES[number]}", table)
    (tmp_path / "_SUCCESS").touch()
    assert read(tmp_path) == wanted
    assert read([tmp_path / f"{number}{SUFFIXES[number]}" for number in (2, 0, 3, 1)]) == wanted


def test_what_is_absent_is_unknown(tmp_path: Path) -> None:
    """Without partition it is 0; without offsets one file keeps its order; headers are null."""
    table = pa.table({"key": [b"a", b"b"], "value": [None, b"1"], "timestamp": [5, 4]})
    file = write(tmp_path / "r.parquet", table)
    assert read(file) == [
        {"partition": 0, "offset": None, "timestamp": 5, "key": b"a", "value": None, "headers": None},
        {"partition": 0, "offset": None, "timestamp": 4, "key": b"b", "value": b"1", "headers": None},
    ]
    assert record_files(file)[0].findings.missing_offsets is None
    write(tmp_path / "s.parquet", table)
    with pytest.raises(InvalidInputError, match="no column offset"):
        read(tmp_path)


def test_gaps_are_counted(tmp_path: Path) -> None:
    table = pa.table({"key": [b"a"] * 3, "value": [b"1"] * 3, "timestamp": [5] * 3, "offset": [9, 2, 3]})
    (log,) = record_files(write(tmp_path / "r.parquet", table))
    assert (log.findings.first_offset, log.findings.next_offset, log.findings.missing_offsets) == (2, 10, 7)
    assert [missing for records in log.read() if records.missing is not None for missing in records.missing] == [
        2,
        2,
        7,
    ]


def test_an_offset_twice_is_refused(tmp_path: Path) -> None:
    columns = {"key": [b"a"] * 2, "value": [b"1", b"2"], "timestamp": [5] * 2, "offset": [4, 4], "partition": [0, 0]}
    table = pa.table(columns)
    with pytest.raises(CorruptError, match="offset 4 of partition 0 twice"):
        read(write(tmp_path / "r.parquet", table))


def test_one_of_several_topics_is_chosen(tmp_path: Path) -> None:
    columns = {"key": [b"a"] * 2, "value": [b"1", b"2"], "timestamp": [5] * 2, "offset": [4, 4], "topic": ["x", "y"]}
    file = write(tmp_path / "r.parquet", pa.table(columns))
    with pytest.raises(InvalidInputError, match="topic="):
        read(file)
    assert [row["value"] for row in read(file, topic="y")] == [b"2"]


COLUMNS = {"key": [b"a"], "value": [b"1"], "timestamp": [5], "offset": [4]}
REFUSED: list[Any] = [
    pytest.param({"value": None}, "expected a column value", id="no value"),
    pytest.param({"timestamp": None}, "expected a column timestamp", id="no timestamp"),
    pytest.param({"key": [1.5]}, "expected binary or text", id="number as key"),
    pytest.param({"timestamp": ["2024"]}, "expected integers of epoch milliseconds", id="text as timestamp"),
    pytest.param(
        {"timestamp": pa.array([1], pa.timestamp("ns", "UTC"))}, "fractions of milliseconds", id="nanoseconds"
    ),
    pytest.param({"timestamp": pa.array([None], pa.int64())}, "row 0: found null in column timestamp", id="null time"),
    pytest.param({"offset": [-1]}, "found -1 in column offset", id="negative offset"),
    pytest.param({"partition": [1 << 40]}, "column partition", id="large partition"),
    pytest.param({"headers": [["a"]]}, "expected a list of", id="headers of texts"),
    pytest.param({"headers": [[["a", "b", "c"]]]}, "expected a list of", id="headers of three"),
]


@pytest.mark.parametrize(("other", "message"), REFUSED)
def test_columns_that_do_not_fit_are_refused(tmp_path: Path, other: dict[str, Any], message: str) -> None:
    columns = {name: data for name, data in {**COLUMNS, **other}.items() if data is not None}
    with pytest.raises(InvalidInputError, match=message) as error:
        read(write(tmp_path / "r.parquet", pa.table(columns)))
    assert error.value.code == ErrorCode.KAFKA_RECORDS and str(tmp_path) in str(error.value)


def test_a_timestamp_without_time_zone_is_refused(tmp_path: Path) -> None:
    columns = {**COLUMNS, "timestamp": pa.array([1], pa.timestamp("ms"))}
    with pytest.raises(InvalidInputError) as error:
        read(write(tmp_path / "r.parquet", pa.table(columns)))
    assert error.value.code == ErrorCode.NAIVE_DATETIME


def test_a_json_file_whose_first_line_has_no_value_is_refused(tmp_path: Path) -> None:
    """Else each of its records would delete."""
    line = {"key": "61", "timestamp": 5, "headers": [{"name": "h", "value": "00"}]}
    with pytest.raises(InvalidInputError, match="expected a column value"):
        read(write_json(tmp_path / "r.jsonl", [line]))


@pytest.mark.parametrize("headers", [[], [["h", "00"]], [{"name": "h", "value": "00"}]])
@pytest.mark.parametrize("lacking", ["key", "value"])
def test_a_json_line_without_key_or_value_is_refused(tmp_path: Path, lacking: str, headers: list[Any]) -> None:
    lines: list[dict[str, Any]] = [
        {"key": "61", "value": None, "timestamp": 5, "offset": n, "headers": headers} for n in range(4)
    ]
    assert len(read(write_json(tmp_path / "r.jsonl", lines))) == 4
    del lines[2][lacking]
    with pytest.raises(InvalidInputError, match=f"fields {lacking} in 4 lines"):
        read(write_json(tmp_path / "s.jsonl", lines))


@pytest.mark.parametrize("name", ["r.parquet", "r.arrow", "r.arrows", "r.feather", "r.jsonl"])
def test_files_that_cannot_be_read_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x00no such file\xff" * 9)
    with pytest.raises(StateStoreError, match=name):
        read(tmp_path / name)


def test_where_nothing_is_what_is_expected_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="jsonl"):
        read(tmp_path)
    with pytest.raises(NotFoundError, match="found nothing"):
        read(tmp_path / "r.jsonl")
    (tmp_path / "r.xml").touch()
    with pytest.raises(InvalidInputError, match="parquet"):
        read(tmp_path / "r.xml")
    with pytest.raises(InvalidInputError, match="base64"):
        read(tmp_path / "r.xml", encoding="latin")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damaged_files_are_errors_or_rows(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"r{suffix}", pa.Table.from_pylist(rows()[:30], RECORDS))
    content = path.read_bytes()
    for at in range(0, len(content), max(1, len(content) // 90)):
        for damaged in (content[:at], content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :]):
            path.write_bytes(damaged)
            try:
                read(path)
            except StateStoreError as error:
                assert path.name in error.message


def test_checksums_of_parquet_pages_are_compared(tmp_path: Path) -> None:
    table, path = pa.Table.from_pylist(rows(), RECORDS), tmp_path / "r.parquet"
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    content = path.read_bytes()
    longest = max((value for value in table.column("value").to_pylist() if value), key=len)
    at = content.index(longest)
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    with pytest.raises(CorruptError, match=r"r\.parquet: cannot be read as parquet: .*checksum"):
        read(path)
