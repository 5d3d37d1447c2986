"""Stores of an application whose RocksDBConfigSetter chose zlib, against what its own queries answered."""

from __future__ import annotations

import json
import tarfile
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from rocksdict import DBCompressionType, Options, Rdict
from support.paths import DATA

import statestore

Key = tuple[str, int | None, int | None]


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zlib")
    with tarfile.open(DATA / "kafka" / "zlib.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "rk-zlib"


def milliseconds(time: datetime | None) -> int | None:
    return None if time is None else round(time.timestamp() * 1000)


def key_of(row: dict[str, Any]) -> Key:
    if "session_start" in row:
        return row["key"], milliseconds(row["session_start"]), milliseconds(row["session_end"])
    return row["key"], milliseconds(row.get("window_start")), None


def test_scans_and_lookups_have_the_rows_of_the_application(application: Path) -> None:
    truth: dict[str, dict[Key, Any]] = defaultdict(dict)
    for line in (application / "truth.jsonl").read_text().splitlines():
        row = json.loads(line)
        truth[row["store"]][row["key"], row.get("start"), row.get("end")] = row["value"]
    state = statestore.inspect(application / "state" / "rk-zlib")
    assert len(truth) > 3
    for store, rows in truth.items():
        table = state.table(store)
        assert {key_of(row): row["value"] for row in table.scan().read_all().to_pylist()} == rows
        one = min(rows)
        found = table.scan(filter=("key", "=", one[0])).read_all().to_pylist()
        assert {key_of(row): row["value"] for row in found} == {k: v for k, v in rows.items() if k[0] == one[0]}
        assert state.summary(store).damaged is False


def test_an_error_names_the_path_of_the_state(application: Path, tmp_path: Path) -> None:
    """Databases are read through private copies, whose names tell nobody anything."""
    folder = tmp_path / "app" / "0_0" / "rocksdb" / "counts"
    folder.mkdir(parents=True)
    for path in (application / "state" / "rk-zlib" / "1_0" / "rocksdb" / "counts").iterdir():
        data = bytearray(path.read_bytes())
        if path.suffix == ".sst":
            data[20] ^= 1
        (folder / path.name).write_bytes(data)
    (tmp_path / "app" / "0_0" / ".checkpoint").write_text("0\n1\napp-counts-changelog 0 7\n")
    given: dict[str, Any] = {"kind": "key-value", "key_serde": "string", "value_serde": "long"}
    with pytest.raises(statestore.CorruptError, match="ROCKSDB_FILE") as raised:
        statestore.inspect(tmp_path / "app", **given).table("counts").scan().read_all()
    assert f"{folder}/" in raised.value.message
    assert "statestore-" not in raised.value.message.replace(str(tmp_path), "")


def test_values_in_blob_files_of_zlib_are_no_damage(application: Path, tmp_path: Path) -> None:
    """RocksDB takes them for damaged ones: it is built without zlib."""
    folder = tmp_path / "app" / "0_0" / "rocksdb" / "counts"
    folder.parent.mkdir(parents=True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_enable_blob_files(True)
    options.set_blob_compression_type(DBCompressionType.lz4())
    database = Rdict(str(folder), options)
    database[b"a"] = bytes(100)
    database.close()
    (folder.parents[1] / ".checkpoint").write_text("0\n1\napp-counts-changelog 0 7\n")
    (blobs,) = folder.glob("*.blob")
    data = bytearray(blobs.read_bytes())
    data[13] = 2  # the codec of the file's values
    blobs.write_bytes(data)
    state = statestore.inspect(tmp_path / "app", kind="key-value")
    with pytest.raises(statestore.UnsupportedError, match=r"ROCKSDB_UNSUPPORTED.*compression Zlib.*blob files"):
        state.table("counts").scan().read_all()
    summary = state.summary("counts")
    assert summary.damaged is False
    assert any("Zlib" in problem for problem in summary.problems)
    assert not any("MANIFEST" in problem for problem in summary.problems)
