"""Files of Kafka Connect's sinks: names, keys beside values, Avro containers, and what is unknown of them.

The Avro files of connect.tar.xz were written by fastavro (tests/engines/kafka/connect).
"""

from __future__ import annotations

import base64
import gzip
import json
import tarfile
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.paths import DATA

import statestore
from statestore.formats.error_codes import ErrorCode
from statestore.formats.kafka.changelogs.avro_container import avro_arrays, avro_rows

TOPIC = "shop-prices"
PLACE = "topics/shop-prices/partition=0"
FIRST = 1_714_550_400_000
Row = dict[str, Any]


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("connect")
    with tarfile.open(DATA / "kafka" / "connect.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "connect"


def avro_row(n: int) -> Row:
    """Row ``n`` as the program that wrote the containers has it."""
    return {
        "id": n % 4,
        "name": None if n % 5 == 0 else f"n\u00e9{n}",
        "price": n / 4,
        "tags": [f"t{i}" for i in range(n % 3)],
        "more": {"x": n, "y": None} if n % 2 else {},
        "kind": "ab"[n % 2],
        "at": FIRST + n,
        "raw": bytes([n % 256, 255]),
    }


def write(root: Path, name: str, content: bytes | str | list[Any] | pa.Table) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, pa.Table):
        pq.write_table(content, path)
        return
    if isinstance(content, list):
        content = "".join(json.dumps(each) + "\n" for each in content)
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)


def rows(root: Path, **options: Any) -> list[Row]:
    serdes = {"key_serde": "string", "value_serde": "json"} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: list[Row] = statestore.inspect(root, **serdes).table(TOPIC).scan().read_all().to_pylist()
    return sorted(found, key=lambda row: str(row["key"]))


def places(root: Path, **options: Any) -> dict[str, tuple[Any, int | None]]:
    return {row["key"]: (json.loads(row["value"]), row["changelog_offset"]) for row in rows(root, **options)}


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_containers_are_what_fastavro_wrote(connect: Path, codec: str) -> None:
    path = connect / f"rows-{codec}.avro"
    with path.open("rb") as stream:
        assert avro_rows(stream, "f") == 40
        found = [row for part in avro_arrays(stream, "f") for row in part.to_pylist()]
    for row in found:
        row["at"], row["more"] = round(row["at"].timestamp() * 1000), dict(row["more"])
    assert found == [avro_row(n) for n in range(40)]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_damaged_containers_are_errors_or_rows(connect: Path, tmp_path: Path, codec: str) -> None:
    """Cuts and changed bytes: rows, or an error of ours that names the file."""
    content = (connect / f"rows-{codec}.avro").read_bytes()
    refused = 0
    for at in range(0, len(content), 41 if codec == "null" else 97):
        for damaged in (content[:at], content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :]):
            path = tmp_path / "damaged.avro"
            path.write_bytes(damaged)
            try:
                with path.open("rb") as stream:
                    sum(map(len, avro_arrays(stream, str(path))))
            except statestore.StateStoreError as error:
                refused += 1
                assert str(path) in str(error) or error.code == ErrorCode.WRONG_SCHEMA, error
    assert refused


def test_a_damaged_block_is_named(connect: Path, tmp_path: Path) -> None:
    content = bytearray((connect / "rows-null.avro").read_bytes())
    content[-3] ^= 1
    (tmp_path / "x.avro").write_bytes(content)
    with (
        (tmp_path / "x.avro").open("rb") as stream,
        pytest.raises(statestore.StateStoreError, match=r"x.avro, block \d+ at byte \d+: found another marker"),
    ):
        list(avro_arrays(stream, "x.avro"))


def test_avro_with_keys_beside_it(connect: Path) -> None:
    """Offsets of the first file are known by the second; of the last file only the first is."""
    found = places(connect, value_serde="json")
    newest = {f"k{n % 4}": n for n in range(10)}
    assert set(found) == set(newest)
    for key, n in newest.items():
        wanted = avro_row(n)
        moment = f"2024-05-01 08:00:00.{n:03}+00" if n else "2024-05-01 08:00:00+00"
        wanted |= {"at": moment, "raw": base64.b64encode(wanted["raw"]).decode()}
        assert found[key] == (wanted, 6 if n == 6 else None)


VALUES = [{"id": n % 3, "name": f"n{n}", "price": n + 0.5, "t": FIRST + n} for n in range(7)]
KEYS = ["a", "b", "c", "a", "b", "a", "d"]


@pytest.mark.parametrize(("suffix", "root"), [(".json", "topics/"), (".json.gz", ""), (".json", "bucket/topics/")])
def test_json_with_keys(tmp_path: Path, suffix: str, root: str) -> None:
    for first, stop in ((0, 3), (3, 6), (6, 7)):
        stem = f"{root}{TOPIC}/partition=0/{TOPIC}+0+{first:010d}"
        write(tmp_path, f"{stem}{suffix}", VALUES[first:stop])
        write(tmp_path, f"{stem}.keys{suffix}", KEYS[first:stop])
    opened = tmp_path / "bucket" if root.startswith("bucket") else tmp_path
    # A last file of one row leaves no offset unknown.
    wanted = {"a": (VALUES[5], 5), "b": (VALUES[4], 4), "c": (VALUES[2], 2), "d": (VALUES[6], 6)}
    assert places(opened) == wanted
    assert places(opened, until_offset="3") == {"a": (VALUES[3], 3), "b": (VALUES[1], 1), "c": (VALUES[2], 2)}


def named(root: Path, form: str) -> Path:
    """Values without keys, in folders by time, of two partitions."""
    for partition, first, stop, hour in ((0, 0, 3, 8), (0, 3, 5, 9), (1, 5, 7, 8)):
        name = f"topics/{TOPIC}/year=2024/month=05/day=01/hour={hour:02}/{TOPIC}+{partition}+{first:010d}"
        found = VALUES[first:stop]
        write(root, f"{name}{form}", found if form == ".json" else pa.Table.from_pylist(found))
    return root


@pytest.mark.parametrize("form", [".json", ".snappy.parquet"])
def test_a_field_is_the_key(tmp_path: Path, form: str) -> None:
    root = named(tmp_path, form)
    with pytest.raises(statestore.InvalidInputError, match=r"KAFKA_RECORDS.*recordColumns, such as key=id"):
        rows(root)
    columns = "key=id,timestamp=t"
    assert [
        (row["key"], json.loads(row["value"]), row["partition_id"]) for row in rows(root, record_columns=columns)
    ] == [("0", VALUES[3], 0), ("0", VALUES[6], 1), ("1", VALUES[4], 0), ("2", VALUES[2], 0), ("2", VALUES[5], 1)]
    table = statestore.inspect(root, key_serde="string", value_serde="json", record_columns=columns).table(TOPIC)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        past = table.history(key="0").read_all().to_pylist()
    assert sorted(json.loads(row["value"])["name"] for row in past) == ["n0", "n3", "n6"]
    found = rows(root, record_columns="key=id,value=name", value_serde="string")
    assert [row["value"] for row in found] == ["n3", "n6", "n4", "n2", "n5"]


def test_offsets_behind_a_gap_are_unknown(tmp_path: Path) -> None:
    """Two rows before offset 5: the second may be any of 1 to 4."""
    for first, found in ((0, VALUES[:2]), (5, VALUES[2:3])):
        write(tmp_path, f"{PLACE}/{TOPIC}+0+{first}.json", found)
    assert {row["key"]: row["changelog_offset"] for row in rows(tmp_path, record_columns="key=name")} == {
        "n0": 0,
        "n1": None,
        "n2": 5,
    }
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        statestore.inspect(tmp_path, record_columns="key=name").table(TOPIC).scan().read_all()
    assert any("the offsets of 1 of 3 records are unknown" in str(each.message) for each in seen)
    with pytest.raises(statestore.InvalidInputError, match="offset 3 may be any of them"):
        rows(tmp_path, record_columns="key=name", until_offset="3")


def test_tombstones_lie_apart(tmp_path: Path) -> None:
    for first, values in ((0, ["v0", "v1"]), (3, ["v3"])):
        write(tmp_path, f"{PLACE}/{TOPIC}+0+{first}.json", values)
    write(tmp_path, f"{PLACE}/{TOPIC}+0+0.keys.json", ["a", "b"])
    write(tmp_path, f"{PLACE}/{TOPIC}+0+3.keys.json", ["c"])
    write(tmp_path, f"topics/{TOPIC}/tombstone/{TOPIC}+0+2.keys.json", ["a"])
    found = rows(tmp_path, value_serde="string")
    assert [(row["key"], row["value"], row["changelog_offset"]) for row in found] == [("b", "v1", 1), ("c", "v3", 3)]


NAME = f"{PLACE}/{TOPIC}+0+0"
REFUSED: list[Any] = [
    ({f"{NAME}.json": [1, 2], f"{NAME}.keys.json": [1]}, {}, "FILE_DAMAGED", "found 1 keys, expected 2"),
    ({f"{NAME}.json": [{"a": 1}]}, {"record_columns": "key=b"}, "KAFKA_RECORDS", "row 0.*a field 'b'"),
    ({f"{NAME}.json": [{"a": 1}]}, {"record_columns": "key=a,offset=b"}, "INVALID_OPTION", "in their names"),
    ({f"{NAME}.json": '{"a":1}\n{"a":'}, {"record_columns": "key=a"}, "FILE_DAMAGED", "ends within a line"),
    ({f"{NAME}.json": '{"a":1}\n{a\n'}, {"record_columns": "key=a"}, "KAFKA_RECORDS", "row 1: found '{a'"),
    ({f"{NAME}.json": '{"a":0.12345678901234567891}\n'}, {"record_columns": "key=a"}, "KAFKA_RECORDS", "16 digits"),
    ({f"{NAME}.json": '{"a":"x"}\n'}, {"record_columns": "key=a,timestamp=a"}, "KAFKA_RECORDS", "epoch milli"),
    ({f"{NAME}.bin": b"x\ny\n"}, {"record_columns": "key=a"}, "KAFKA_RECORDS", "format.class"),
    ({f"{NAME}.avro": b"Obj\x02"}, {"record_columns": "key=a"}, "FILE_DAMAGED", "header: found other first bytes"),
    (
        {f"{NAME}.json": [{"a": 1}] * 3, f"{PLACE}/{TOPIC}+0+2.json": [{"a": 1}]},
        {"record_columns": "key=a"},
        "KAFKA_RECORDS",
        "whose offsets overlap",
    ),
    (
        {f"topics/{TOPIC}/x=1/{TOPIC}+0+0.json": [{"a": 1}], f"topics/{TOPIC}/x=2/{TOPIC}+0+2.json": [{"a": 1}]},
        {"record_columns": "key=a"},
        "KAFKA_RECORDS",
        "in two folders, with offsets missing from 1 on",
    ),
    (
        {f"{NAME}.parquet": pa.table({"a": [1.0, float("nan")]})},
        {"record_columns": "key=a"},
        "KAFKA_RECORDS",
        "JSON does not have",
    ),
]


@pytest.mark.parametrize(("files", "options", "code", "message"), REFUSED)
def test_what_is_unknown_is_refused(tmp_path: Path, files: Row, options: Row, code: str, message: str) -> None:
    for name, content in files.items():
        write(tmp_path, name, content)
    with pytest.raises(statestore.StateStoreError, match=message) as error:
        rows(tmp_path, **options)
    assert error.value.code == ErrorCode(code)
