"""Damage to each kind of file of an engine's state is told by verify, with the file and the versions that need it."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.command_line import run
from support.flink.fixtures import copied, manifest
from support.kafka.applications import unpacked
from support.parameters import mostly_slow

import statestore
from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.flink.snapshot.handles import KeyGroupHandle
from statestore.formats.flink.snapshot.metadata import parse_metadata
from statestore.formats.kafka.logs.log_directory import log_partitions
from statestore.formats.kafka.logs.log_reading import open_log

Damage = Callable[[Path], None]


def flip(file: Path) -> None:
    """Change one bit in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])


def empty(file: Path) -> None:
    file.write_bytes(b"")


DAMAGES: tuple[Damage, ...] = (flip, cut, empty, Path.unlink)


def spark(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(checkpoint_path(name), folder / "checkpoint"))


@pytest.mark.parametrize("name", mostly_slow(["spark4.3.0-agg__hdfs", "spark4.3.0-agg__rkcl"], 2))
def test_a_whole_checkpoint(name: str) -> None:
    (found,) = statestore.verify(checkpoint_path(name), deep=True)
    assert found.ok and not found.notes


@pytest.mark.parametrize(
    ("name", "file", "newest", "damage"),
    mostly_slow(
        [
            *(("spark4.3.0-agg__hdfs", "state/0/1/6.delta", True, damage) for damage in DAMAGES),
            *(("spark4.3.0-agg__hdfs", "state/0/0/2.delta", False, damage) for damage in (flip, Path.unlink)),
            *(("spark4.3.0-agg__rkcl", "state/0/1/5.changelog", False, damage) for damage in (cut, empty)),
            *(("spark4.3.0-agg__rkcl", "state/0/0/2.changelog", False, damage) for damage in (flip, Path.unlink)),
        ],
        5,
    ),
)
def test_a_file_of_a_checkpoint(tmp_path: Path, name: str, file: str, newest: bool, damage: Damage) -> None:
    path = spark(name, tmp_path)
    damage(path / file)
    (found,) = statestore.verify(path)
    assert found.ok != (newest or damage is Path.unlink)  # names of files alone show that a batch is lost
    (found,) = statestore.verify(path, deep=True)
    assert not found.ok
    told = [problem for problem in found.problems if file.rpartition("/")[0] in problem.message]
    assert told and all(problem.versions is not None and "batch" in problem.affects for problem in told)


def test_what_is_missing_before_all_others_is_a_note(tmp_path: Path) -> None:
    path = spark("spark4.3.0-agg__hdfs", tmp_path)
    (path / "state/0/0/1.delta").unlink()
    (found,) = statestore.verify(path)
    assert found.ok and any("batches 0 to 2 are known" in note for note in found.notes)


def test_each_damaged_part_is_told_once_with_its_versions(tmp_path: Path) -> None:
    path = spark("spark4.3.0-agg__hdfs", tmp_path)
    for partition in (0, 1):
        flip(path / f"state/0/{partition}/1.delta")
    (found,) = statestore.verify(path, deep=True)
    told = {problem.message.partition(": ")[0]: problem for problem in found.problems}
    assert set(told) == {str(path / f"state/0/{partition}/1.delta") for partition in (0, 1)}
    assert all(problem.versions is not None and problem.versions[0] == 0 for problem in told.values())
    assert all("batches 0 to" in problem.affects for problem in told.values())


@pytest.mark.parametrize("damage", mostly_slow([cut, Path.unlink], 2))  # files of the heap have no checksums
def test_a_file_of_a_savepoint(tmp_path: Path, damage: Damage) -> None:
    folder = copied("sql", tmp_path) / manifest("sql")["snapshots"][-1]["path"]
    files = [each for each in folder.iterdir() if each.is_file() and each.name != "_metadata"]
    file = max(files, key=lambda each: each.stat().st_size)
    damage(file)
    problems = [problem for each in statestore.verify(folder) for problem in each.problems]
    assert problems and all(file.name in problem.message for problem in problems)


@pytest.mark.parametrize("damage", mostly_slow([flip, Path.unlink], 2))
def test_a_table_file_of_a_checkpoint(tmp_path: Path, damage: Damage) -> None:
    folder = copied("file-merging", tmp_path) / manifest("file-merging")["snapshots"][-1]["path"]
    file = max((folder.parent / "shared").rglob("*"), key=lambda each: each.stat().st_size if each.is_file() else 0)
    damage(file)
    problems = [problem for each in statestore.verify(folder) for problem in each.problems]
    assert problems and all(file.name in problem.message for problem in problems)


@pytest.mark.parametrize("damage", mostly_slow([flip, cut], 2))
def test_a_segment_of_a_changelog(tmp_path: Path, damage: Damage) -> None:
    name = "orders-audited-changelog"
    for partition in (0, 1):
        shutil.copytree(unpacked("orders") / "log" / f"{name}-{partition}", tmp_path / f"{name}-{partition}")
    (file,) = (tmp_path / f"{name}-1").glob("*.log")
    assert all(each.ok for each in statestore.verify(tmp_path))
    damage(file)
    (found,) = statestore.verify(tmp_path)
    if damage is flip:
        assert not found.ok and file.name in found.problems[0].message
    else:  # a log that was copied while its broker wrote ends so
        assert found.ok and any(f"{file.name} ends in" in note and "partition 1" in note for note in found.notes)


def test_an_export_is_verified_with_its_options(tmp_path: Path) -> None:
    file = tmp_path / "a-s-changelog.txt"
    file.write_text("k|v\n")
    assert run("verify", tmp_path).code == 1
    options = ("--record-columns", "key,value", "--record-separator", "|")
    assert run("verify", tmp_path, *options).code == 0
    file.write_text("k|v\nk\n")
    said = run("verify", tmp_path, *options, "--json")
    assert said.code == 1 and "line 2" in json.loads(said.out)["problems"][0]["message"]


def test_the_command_reads_all_versions(tmp_path: Path) -> None:
    path = spark("spark4.3.0-agg__hdfs", tmp_path)
    flip(path / "state/0/0/1.delta")
    assert run("verify", path).code == 0
    said = run("verify", path, "--deep")
    assert said.code == 1 and "state/0/0/1.delta" in said.out


# Damage that reads pass over, or that another file than the damaged one shows


def segments(folder: Path) -> Path:
    """A partition of five segments as a broker leaves it: with an index of times, and the offsets of its leaders."""
    path = folder / "segments-0"
    shutil.copytree(unpacked("broker-logs") / "log" / path.name, path)
    (partition,) = log_partitions(path)
    log = open_log(partition)
    for file, end in zip(log.files, log.ends, strict=True):
        base = int(Path(file.path).stem)
        Path(file.path).with_suffix(".timeindex").write_bytes(struct.pack(">qi", 1_700_000_000_000, end - 1 - base))
    checkpoint(path / "leader-epoch-checkpoint", "0 0")
    return path


def checkpoint(path: Path, line: str) -> None:
    path.write_text(f"0\n1\n{line}\n")


def drop(path: Path, base: int) -> None:
    for file in path.glob(f"{base:020}.*"):
        file.unlink()


def cleaned(path: Path, offset: int) -> None:
    checkpoint(path.parent / "cleaner-offset-checkpoint", f"segments 0 {offset}")


def behind(path: Path) -> None:
    drop(path, 26)
    checkpoint(path.parent / "recovery-point-offset-checkpoint", "segments 0 27")


def lost_with_its_index(path: Path) -> None:
    drop(path, 6)
    cleaned(path, 0)


def aborted_behind(path: Path) -> None:
    """An index of transactions of the last segment, of which one was aborted behind its end."""
    (path / f"{26:020}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 26, 40, 26))


def lost_with_transactions(path: Path) -> None:
    drop(path, 26)
    aborted_behind(path)


def zeros(path: Path) -> None:
    file = path / f"{26:020}.log"
    file.write_bytes(bytes(file.stat().st_size))
    file.with_suffix(".timeindex").unlink()


def lost_partition(path: Path) -> None:
    (path.parent / "segments-1").mkdir()


@pytest.mark.parametrize(
    ("damage", "told"),
    mostly_slow(
        [
            (lambda path: None, None),
            (lambda path: cleaned(path, 26), None),
            (lambda path: (path / f"{6:020}.log").unlink(), f"{6:020}.log: this segment of partition 0 is missing"),
            (
                lambda path: empty(path / f"{6:020}.log"),
                f"{6:020}.log: ends at byte 0 before offset 6, but {6:020}.time",
            ),
            (lambda path: empty(path / f"{26:020}.log"), f"{26:020}.log: ends at byte 0 before offset 26, but"),
            (lost_with_its_index, "offsets 6 to 17 before this segment are missing"),
            (aborted_behind, f"{26:020}.txnindex has a transaction up to offset 40"),
            (lost_with_transactions, f"{26:020}.log: this segment of partition 0 is missing"),
            (behind, "recovery-point-offset-checkpoint has offset 27"),
            (
                lambda path: drop(path, 0),
                f"{6:020}.log: is the first segment of partition 0, whose log began at offset 0",
            ),
            (lost_partition, "segments-1: found no segment"),
        ],
        4,
    ),
)
def test_a_lost_segment(tmp_path: Path, damage: Callable[[Path], object], told: str | None) -> None:
    damage(segments(tmp_path))
    (found,) = statestore.verify(tmp_path)
    assert [told in problem.message for problem in found.problems] == [True] if told else found.ok
    assert not any("compacted, or a segment is lost" in note for note in found.notes)


def test_a_gap_between_segments_that_may_be_compacted_is_a_note(tmp_path: Path) -> None:
    drop(segments(tmp_path), 6)
    (found,) = statestore.verify(tmp_path)
    assert found.ok and any("offsets 6 to 17 before" in note for note in found.notes)


def test_zeros_that_may_be_preallocated_are_a_note(tmp_path: Path) -> None:
    zeros(segments(tmp_path))
    (found,) = statestore.verify(tmp_path)
    assert found.ok and any(
        f"{26:020}.log: the " in note and "bytes from byte 0 on are zeros" in note for note in found.notes
    )


@pytest.mark.parametrize(("damage", "file"), mostly_slow([(cut, "MANIFEST"), (Path.unlink, "sst")], 2))
def test_a_database_of_a_state_directory(tmp_path: Path, damage: Damage, file: str) -> None:
    path = tmp_path / "orders" / "5_0"
    shutil.copytree(unpacked("orders") / "state" / "orders" / path.name, path)
    assert all(each.ok for each in statestore.verify(path.parent))
    victim = max(path.rglob(f"*{file}*"), key=lambda each: (each.stat().st_size, str(each)))
    damage(victim)
    (problem,) = [problem for each in statestore.verify(path.parent) for problem in each.problems]
    assert str(victim) in problem.message


def test_a_table_file_under_the_name_of_another_one(tmp_path: Path) -> None:
    """Databases of old releases of RocksDB do not record which file they mean."""
    path = Path(shutil.copytree(unpacked("half-flushed").parent / "eos28n", tmp_path / "eos28n"))
    assert all(each.ok for each in statestore.verify(path))
    database = next(path.rglob("1_0/rocksdb/counts"))
    shutil.copy(database / "000011.sst", database / "000012.sst")
    (problem,) = [problem for each in statestore.verify(path) for problem in each.problems]
    assert "000012.sst" in problem.message and "the MANIFEST says" in problem.message


def test_a_topic_without_any_segment(tmp_path: Path) -> None:
    segments(tmp_path)
    (tmp_path / "lost-0").mkdir()
    (problem,) = [problem for each in statestore.verify(tmp_path) for problem in each.problems]
    assert "lost-0: found no segment" in problem.message


def test_each_byte_of_a_table_file_is_covered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small databases are read by RocksDB itself, which skips filters and blocks of other uses."""
    monkeypatch.setenv("STATESTORE_ROCKSDB_READER", "rocksdict")
    path = tmp_path / "ledger" / "4_0"
    shutil.copytree(unpacked("ledger") / "state" / "ledger" / path.name, path)
    file = max(path.rglob("*.sst"), key=lambda each: (each.stat().st_size, str(each)))
    content = file.read_bytes()
    for at in range(5, len(content), len(content) // 9):
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        told = [problem.message for each in statestore.verify(path.parent) for problem in each.problems]
        assert told, at


@pytest.mark.parametrize("damage", mostly_slow([cut, flip, empty], 3))
def test_a_snapshot_that_reads_do_without(tmp_path: Path, damage: Damage) -> None:
    path = spark("spark4.3.0-agg__rkcl", tmp_path)
    damage(path / "state/0/1/6.zip")
    (found,) = statestore.verify(path)
    assert [problem.versions for problem in found.problems] == [(5, 5)]
    said = found.problems[0].message
    assert "state/0/1/6.zip" in said and "reads succeed without this file" in said and found.rows


def test_a_filter_that_no_read_needs(tmp_path: Path) -> None:
    path = spark("spark4.3.0-agg__rkcl", tmp_path)
    (file,) = (path / "state/0/0/SSTs").glob("000008-*.sst")
    flip(file)  # within the Bloom filter
    (found,) = statestore.verify(path)
    assert found.problems
    for problem in found.problems:
        assert "000008.sst: byte 1097: a block has checksum" in problem.message
        assert f"SSTs/{file.name}" in problem.message


def test_a_lost_commit(tmp_path: Path) -> None:
    path = spark("spark4.3.0-agg__rkcl", tmp_path)
    (path / "commits/5").unlink()
    (found,) = statestore.verify(path)
    assert found.ok and any("commits/5: no such file, and offsets/5 and state" in note for note in found.notes)
    (path / "commits/2").unlink()
    (found,) = statestore.verify(path)
    assert ["commits/2: no such file, between 1 and 3" in problem.message for problem in found.problems] == [True]


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_damaged_logs_of_the_newest_batch(tmp_path: Path, log: str) -> None:
    """The error says which batch can be read, and how."""
    path = spark("spark4.3.0-agg__hdfs", tmp_path)
    empty(path / log / "5")
    empty(path / log / "4")
    with pytest.raises(CorruptError, match=rf"{log}/5: .*batch 3 is the newest .* without commits/4 to commits/5"):
        statestore.inspect(path)
    for number in (4, 5):
        (path / "commits" / str(number)).unlink()
    assert statestore.inspect(path).table("state").scan(version=3).read_all().num_rows
    with pytest.raises(NotFoundError, match="4"):
        statestore.inspect(path).table("state").scan(version=4).read_all()


def test_a_log_without_the_time_of_its_batch(tmp_path: Path) -> None:
    path = spark("spark4.3.0-agg__hdfs", tmp_path)
    shutil.copy(path / "commits/2", path / "offsets/2")
    (found,) = statestore.verify(path)
    (problem,) = found.problems
    assert "offsets/2: found no batchTimestampMs" in problem.message and problem.versions == (2, 2)


@pytest.mark.parametrize("name", ["spark4.3.0-agg__hdfs", "spark4.3.0-agg__rkcl"])
def test_a_lost_schema(tmp_path: Path, name: str) -> None:
    path = spark(name, tmp_path)
    (path / "state/0/0/_metadata/schema").unlink()
    (found,) = statestore.verify(path)
    assert [problem.code for problem in found.problems] == ["FILE_DAMAGED"] and found.rows
    assert "state/0/0/_metadata/schema: no such file" in found.problems[0].message
    assert "Spark 4.0 or later" in found.problems[0].message
    shutil.rmtree(path / "state/0/_metadata")  # Spark 3.5 writes none, and before 3.1 none wrote a schema
    (found,) = statestore.verify(path)
    assert found.ok == ("hdfs" in name)
    assert any("no schema file says the columns" in note for note in found.notes)


def test_a_changed_offset_in_the_metadata_of_a_savepoint(tmp_path: Path) -> None:
    folder = copied("hashmap", tmp_path) / manifest("hashmap")["snapshots"][-1]["path"]
    file = folder / "_metadata"
    content, parsed = file.read_bytes(), parse_metadata(file.read_bytes(), "_metadata")
    handles = [subtask.managed_keyed for operator in parsed.operators for subtask in operator.subtasks]
    offset = max(max(handle.offsets) for handle in handles if isinstance(handle, KeyGroupHandle))
    file.write_bytes(content.replace(struct.pack(">q", offset), struct.pack(">q", offset - 3), 1))
    (found,) = statestore.verify(folder, "kv-string.sum")
    assert found.problems
    assert all(str(file) in each.message and "savepoint" in each.message for each in found.problems)


def test_damage_that_keeps_all_from_being_opened_is_the_one_problem(tmp_path: Path) -> None:
    checkpoint = spark("spark4.3.0-agg__hdfs", tmp_path)
    empty(checkpoint / "metadata")
    for options in ([], ["--deep"]):
        answer = run("verify", checkpoint, "--json", *options)
        assert answer.code == 1
        (found,) = answer.rows
        (problem,) = found["problems"]
        assert (found["ok"], found["files"], problem["affects"]) == (False, 0, "every read")
        assert f"{checkpoint / 'metadata'}: " in problem["message"]
    with pytest.raises(NotFoundError, match="PATH_NOT_FOUND"):
        statestore.verify(tmp_path / "none")
