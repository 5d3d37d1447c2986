"""RocksDB directories put together from snapshots: both readers give each row, and the snapshot stays as it was."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict
from support.flink.fixtures import NAMES, fixture, manifest, truth
from support.flink.snapshot_reads import files_at, rocks_of, tree_of
from support.parameters import mostly_slow
from support.rocksdb.rocksdb_scans import Rows, pairs, scanned
from support.rocksdb.rocksdb_tables import (
    FIRST_EDIT,
    MERGE,
    PUT,
    Entry,
    Form,
    new_file,
    sorted_entries,
    string,
    table,
    varint,
    write_manifest,
)

from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.flink.snapshot.handles import InPlace, RelativeHandle, RocksHandle, StreamHandle
from statestore.formats.flink.snapshot.rocksdb_copy import DELIMITER, opened_database
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.rocksdb.manifest import read_families
from statestore.formats.rocksdb.scan import scan_rocksdb

WITH_ROCKSDB = [name for name in NAMES if "hashmap" not in name and name != "changelog"]
ODD_NAMES = [
    "sp ace",
    'quo"te',
    "semi;colon=#hash",
    "ünï",
    "a]b",
    "back\\slash",
    "a:b",
    "a\nb",
    "{}",
    "[CFOptions",
    "é#",
]


def rows_by(reader: str, directory: Path, family: str, monkeypatch: pytest.MonkeyPatch) -> Rows:
    monkeypatch.setenv("STATESTORE_ROCKSDB_READER", reader)
    return [row for rows in scan_rocksdb(directory, pairs, family=family, delimiter=DELIMITER) for row in rows]


@pytest.mark.parametrize("name", mostly_slow(WITH_ROCKSDB, ("odd-names", "sql-1.20")))
def test_each_state_has_the_rows_of_the_truth_and_the_files_stay_as_they_were(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree_of(fixture(name))
    for facts in manifest(name)["snapshots"]:
        if facts["kind"] != "savepoint-canonical":
            check(name, facts, monkeypatch)
    assert tree_of(fixture(name)) == before


def check(name: str, facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A map state has a row an entry, another state a row a key and namespace."""
    expected: Counter[tuple[str, str]] = Counter()
    ids = manifest(name)["operator_ids"]
    for line in truth(name, facts["truth"]):
        rows = len(line["value"]) if line["kind"] == "map" and isinstance(line["value"], list) else 1
        expected[ids.get(line["operator"], line["operator"]), line["state"]] += rows
    files = files_at(fixture(name) / facts["path"])
    metadata = files.metadata()
    widths = {operator.id: 1 if operator.max_parallelism <= 128 else 2 for operator in metadata.operators}
    found: Counter[tuple[str, str]] = Counter()
    for operator, handle in rocks_of(metadata):
        with opened_database(files, handle) as directory:
            for family in read_families(directory):
                rows_of = rows_by("rocksdict", directory, family, monkeypatch)
                assert scanned(directory, family, delimiter=DELIMITER) == rows_of
                for key, _ in rows_of:
                    group = int.from_bytes(key[: widths[operator]])
                    assert handle.first_group <= group < handle.first_group + handle.groups
                    found[operator, family] += 1
    assert {key: count for key, count in found.items() if key in expected} == {
        key: count for key, count in expected.items() if key in found
    }
    left = {state for _, state in expected} - {state for _, state in found}
    assert not left or name == "heap-timers"


def with_families(path: Path, names: list[str]) -> dict[str, Rows]:
    """Write a database whose families hold list states with operands that RocksDB has not merged yet."""
    chance = random.Random(7)
    expected: dict[str, Rows] = {}
    edits = [FIRST_EDIT + varint(3) + varint(100) + varint(4) + varint(1 << 40)]
    for number, name in enumerate(names, 1):
        edits.append(varint(200) + varint(number) + varint(201) + string(name.encode()) + varint(2) + varint(0))
        model: dict[bytes, list[bytes]] = {}
        runs: list[list[Entry]] = [[], []]
        for sequence in range(1, 120):
            key, value = b"key-%d" % chance.randrange(9), b"%d,%d" % (number, sequence)
            is_put = chance.randrange(10) == 0
            runs[sequence // 60].append((key, sequence, PUT if is_put else MERGE, value))
            model[key] = [value] if is_put else [*model.get(key, []), value]
        for run, entries in enumerate(runs):
            file = table(sorted_entries(entries), Form(properties={b"rocksdb.column.family.name": name.encode()}))
            place = 10 * number + run
            (path / f"{place:06d}.sst").write_bytes(file.data)
            edits.append(varint(200) + varint(number) + new_file(place, 1 - run, len(file.data), entries))
        expected[name] = sorted((key, DELIMITER.join(values)) for key, values in model.items())
    write_manifest(path, edits)
    return expected


def handle_of(folder: Path, **changed: StreamHandle) -> RocksHandle:
    """A handle of all files of a folder, as in a native savepoint."""
    pairs: list[tuple[str, StreamHandle]] = [
        (path.name, RelativeHandle(path.name, path.stat().st_size)) for path in sorted(folder.iterdir())
    ]
    shared = tuple(pair for pair in pairs if pair[0].endswith(".sst"))
    private = tuple(pair for pair in pairs if not pair[0].endswith(".sst")) + tuple(changed.items())
    return RocksHandle(1, "backend", 0, 128, InPlace("meta", b""), shared, private)


@pytest.mark.parametrize("reader", ["rocksdict", "scanner"])
def test_operands_of_list_states_are_merged_whatever_the_state_is_called(
    reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = with_families(tmp_path, ODD_NAMES)
    with opened_database(files_at(tmp_path), handle_of(tmp_path)) as directory:
        assert set(read_families(directory)) == {"default", *ODD_NAMES}
        for name in ODD_NAMES:
            assert rows_by(reader, directory, name, monkeypatch) == expected[name], name
    assert len(expected) == len(ODD_NAMES)


def test_lookups_merge_operands_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATESTORE_ROCKSDB_READER", raising=False)
    expected = with_families(tmp_path, ["history"])
    with opened_database(files_at(tmp_path), handle_of(tmp_path)) as directory:
        found = scan_rocksdb(
            directory, pairs, family="history", key_ranges=[(b"key-3", b"key-3\0")], delimiter=DELIMITER
        )
        assert [row for rows in found for row in rows] == [row for row in expected["history"] if row[0] == b"key-3"]


def test_states_with_blob_files_are_read_by_rocksdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may switch them on by its own factory of options; the scanner does not read them."""
    own = Options(raw_mode=True)
    own.create_if_missing(True)
    own.set_enable_blob_files(True)
    database = Rdict(str(tmp_path), own)
    family = database.create_column_family("large", own)
    rows = [(b"key-%d" % number, bytes([number]) * 5000) for number in range(9)]
    for key, value in rows:
        family[key] = value
    family.flush()
    database.flush()
    family.close()
    database.close()
    assert list(tmp_path.glob("*.blob"))
    with opened_database(files_at(tmp_path), handle_of(tmp_path)) as directory:
        for reader in ("scanner", "rocksdict"):
            assert rows_by(reader, directory, "large", monkeypatch) == rows


def test_options_of_flink_are_left_out(tmp_path: Path) -> None:
    """Those of Flink 1.20 name a directory for logs that is gone, with which RocksDB opens nothing."""
    with_families(tmp_path, ["a"])
    (tmp_path / "OPTIONS-000031").write_text("[Version]\n")
    with opened_database(files_at(tmp_path), handle_of(tmp_path)) as directory:
        (options,) = directory.glob("OPTIONS-*")
        assert "StringAppendTESTOperator" in options.read_text()


def test_a_small_state_is_read_without_compiled_loops(tmp_path: Path) -> None:
    """They take a third of a second to load, and need numba."""
    with_families(tmp_path, ["a"])
    program = f"""
import sys
sys.modules["numba"] = None
from statestore.formats.flink.snapshot.handles import InPlace, RelativeHandle, RocksHandle
from statestore.formats.flink.snapshot.rocksdb_copy import opened_database
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.places.folder import folder_at
from statestore.formats.places.locations import parse_location
from statestore.formats.rocksdb.scan import scan_rocksdb
handle = {handle_of(tmp_path)!r}
with opened_database(SnapshotFiles(folder_at(parse_location({str(tmp_path)!r}))), handle) as directory:
    print(sum(scan_rocksdb(directory, len, family="a", delimiter=b",")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("9\n", "")


def test_only_table_files_are_links(tmp_path: Path) -> None:
    """RocksDB writes to others, such as LOG, and would write through a link into the snapshot."""
    with_families(tmp_path, ["a"])
    for name in ("LOG", "LOCK", "IDENTITY", "rocksdict-config.json", "notes.txt"):
        (tmp_path / name).write_text("of the snapshot")
    before = tree_of(tmp_path)
    files = files_at(tmp_path)
    with opened_database(files, handle_of(tmp_path)) as directory:
        links = {path.name for path in directory.iterdir() if path.is_symlink()}
        assert links == {path.name for path in tmp_path.glob("*.sst")}
        assert {path.name for path in directory.iterdir()} == {
            *links,
            "CURRENT",
            "MANIFEST-000005",
            next(directory.glob("OPTIONS-*")).name,
        }
        list(scan_rocksdb(directory, pairs, family="a", delimiter=DELIMITER))
    assert tree_of(tmp_path) == before


@pytest.mark.parametrize("name", ["", "..", "../CURRENT", "/etc/passwd", "a/b", "a b", "a\nb", "é", "\0", "x" * 256])
def test_a_name_that_is_none_of_rocksdb_is_refused(name: str, tmp_path: Path) -> None:
    with_families(tmp_path, ["a"])
    handle = handle_of(tmp_path, **{name: InPlace("", b"x")})
    with pytest.raises(CorruptError) as raised, opened_database(files_at(tmp_path), handle):
        pass
    assert raised.value.code == "FLINK_METADATA"
    assert "expected the name of a file of RocksDB" in raised.value.message


def test_a_file_that_a_handle_has_twice_or_not_is_refused(tmp_path: Path) -> None:
    with_families(tmp_path, ["a"])
    files = files_at(tmp_path)
    with pytest.raises(CorruptError, match="found file CURRENT of RocksDB twice"):
        opened_database(files, handle_of(tmp_path, CURRENT=InPlace("", b"x"))).__enter__()
    (tmp_path / "CURRENT").unlink()
    with pytest.raises(CorruptError, match="found no file CURRENT"):
        opened_database(files, handle_of(tmp_path)).__enter__()


def test_the_directory_is_removed_after_errors_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    database = tmp_path / "database"
    database.mkdir()
    with_families(database, ["a"])
    handle = handle_of(database)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ZeroDivisionError), opened_database(files_at(database), handle) as directory:
        made.append(directory)
        assert directory.is_dir() and directory.is_relative_to(tmp_path)
        raise ZeroDivisionError
    assert not made[0].exists()
    next(database.glob("*.sst")).unlink()
    with pytest.raises(NotFoundError, match="FLINK_FILE_MISSING"), opened_database(files_at(database), handle):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["database"]


def test_a_damaged_manifest_is_refused(tmp_path: Path) -> None:
    with_families(tmp_path, ["a"])
    manifest_file = tmp_path / "MANIFEST-000005"
    data = bytearray(manifest_file.read_bytes())
    data[20] ^= 1
    manifest_file.write_bytes(data)
    with pytest.raises(CorruptError, match="ROCKSDB_FILE"), opened_database(files_at(tmp_path), handle_of(tmp_path)):
        pass


def test_segments_and_bytes_in_place_are_written() -> None:
    """Merged files hold several files of RocksDB each; small ones may lie in the metadata."""
    for name, kind in (("file-merging", "SegmentHandle"), ("wide-rocksdb", "InPlace")):
        files: SnapshotFiles = files_at(fixture(name) / manifest(name)["snapshots"][0]["path"])
        _, handle = next(rocks_of(files.metadata()))
        assert {type(each).__name__ for _, each in handle.shared} == {kind}
        with opened_database(files, handle) as directory:
            for file, each in handle.shared:
                assert not (directory / file).is_symlink()
                assert (directory / file).read_bytes() == files.read(each)
