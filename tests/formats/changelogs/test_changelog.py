"""The changelog: acknowledged batches are read back, torn tails end it, damage is reported, locks show living
owners."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from support.processes.scripts import command

from statestore.formats.changelogs import changelog, changelog_writer
from statestore.formats.changelogs.changelog import ROW_SCHEMA, read_changelog
from statestore.formats.changelogs.changelog_frames import HEADER, MAGIC, ROW_MAGIC, ROW_SEED, SEED
from statestore.formats.changelogs.changelog_writer import ChangelogWriter, try_adopt
from statestore.formats.errors import CorruptError, InvalidInputError, StorageError, UnsupportedError

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [pa.field("k", pa.string(), False), ("v", pa.binary()), ("timestamp", TIME), ("_tombstone", pa.bool_())]
)
Found = list[tuple[dict[str, list[Any]], int]]


def batch(number: int, value: bytes | None = b"v") -> pa.RecordBatch:
    cells = [[f"key-{number}"], [value], [number * 1_000], [value is None]]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(cells, SCHEMA, strict=True)], schema=SCHEMA)


def written(path: Path, *batches: pa.RecordBatch) -> list[int]:
    """Write a changelog; return the ends of its frames: the schema's, then each batch's."""
    writer = ChangelogWriter(path, SCHEMA)
    ends = [path.stat().st_size, *(writer.append(item) for item in batches)]
    writer.close()
    return ends


def found(path: Path) -> Found:
    return [(item.to_pydict(), end) for item, end in read_changelog(path, SCHEMA)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.changelog"


def test_what_was_appended_is_read(path: Path) -> None:
    """Records are read with or without the schema known; nulls, empty batches and many rows included."""
    batches = [
        batch(1),
        batch(2, None),
        pa.RecordBatch.from_pylist([], SCHEMA),
        *[pa.concat_batches([batch(3)] * 5_000)],
    ]
    ends = written(path, *batches)
    for schema in (SCHEMA, None):
        read = list(read_changelog(path, schema))
        assert [item for item, _ in read] == batches
        assert [end for _, end in read] == ends[1:]


def test_a_slice_is_written_as_a_slice(path: Path) -> None:
    written(path, pa.concat_batches([batch(n) for n in range(100)]).slice(50, 2))
    assert found(path)[0][0]["k"] == ["key-50", "key-51"]
    assert path.stat().st_size < 2_000


def test_a_new_changelog_holds_nothing(path: Path) -> None:
    written(path)
    assert found(path) == []


def test_a_changelog_is_created_once(path: Path) -> None:
    """And a failed creation leaves nothing behind."""
    ends = written(path, batch(1))
    with pytest.raises(StorageError, match="exists"):
        ChangelogWriter(path, SCHEMA)
    assert found(path) == [(batch(1).to_pydict(), ends[1])]
    assert list(path.parent.iterdir()) == [path]


def test_another_schema_is_refused(path: Path) -> None:
    writer = ChangelogWriter(path, SCHEMA)
    with pytest.raises(InvalidInputError, match="WRONG_SCHEMA"):
        writer.append(pa.record_batch({"k": ["a"]}))
    writer.close()
    with pytest.raises(CorruptError, match=r"CHANGELOG_CORRUPT.*schema"):
        list(read_changelog(path, pa.schema({"k": pa.int64()})))


def test_a_torn_tail_ends_the_changelog_at_every_length(path: Path) -> None:
    """Whatever part of the last writes reached the disk, the whole frames before it are read and no error is made."""
    ends = written(path, batch(1), batch(2), batch(3))
    data = path.read_bytes()
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        assert [end for _, end in found(path)] == [end for end in ends[1:] if end <= length]


def test_zeros_at_the_end_are_a_torn_tail(path: Path) -> None:
    """After a power cut a file may be longer than what was written to it."""
    ends = written(path, batch(1), batch(2))
    data = path.read_bytes()
    for length in range(ends[1], ends[2]):
        zeroed = data[:length] + bytes(4096)
        path.write_bytes(zeroed)
        whole = zeroed.startswith(data)  # what was lost were zeros
        assert [end for _, end in found(path)] == ends[1 : 3 if whole else 2]


def test_any_damage_before_the_end_is_said(path: Path) -> None:
    """Damage each byte of schema and first batch: what lies there was acknowledged and cannot be passed over."""
    ends = written(path, batch(1), batch(2))
    data = path.read_bytes()
    for position in range(ends[1]):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        frame = 0 if position < ends[0] else ends[0]
        with pytest.raises(CorruptError, match=f"CHANGELOG_CORRUPT.*{path.name}, byte {frame}:"):
            found(path)


def test_damage_in_the_last_frame_reads_as_torn(path: Path) -> None:
    """Such damage looks like a write that never finished."""
    ends = written(path, batch(1), batch(2))
    data = path.read_bytes()
    for position in range(ends[1], ends[2]):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        assert [end for _, end in found(path)] == ends[1:2]


@pytest.mark.parametrize("change", [lambda a, b, c: a + c, lambda a, b, c: a + c + b, lambda a, b, c: a + b + b + c])
def test_lost_swapped_and_repeated_frames_are_damage(
    path: Path, change: Callable[[bytes, bytes, bytes], bytes]
) -> None:
    """A frame's checksum depends on its place, so each is good only where it was written."""
    schema, first, second = written(path, batch(1), batch(2))
    data = path.read_bytes()
    changed = change(data[:schema], data[schema:first], data[first:second])
    path.write_bytes(changed)
    assert all(end <= first for _, end in acceptable(path))


def acceptable(path: Path) -> Found:
    try:
        return found(path)
    except CorruptError as error:
        assert error.code == "CHANGELOG_CORRUPT"
        return []


def test_a_frame_stored_as_a_value_is_no_frame(path: Path) -> None:
    """Else a value could make a torn tail look like damage, and the store would not open after a crash."""
    written(path, batch(1))
    frames = path.read_bytes()
    path.unlink()
    ends = written(path, batch(1), batch(2, frames * 3))
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    assert [end for _, end in found(path)] == ends[1:2]


def test_lengths_are_not_taken_on_trust(path: Path) -> None:
    """A frame that says it is 4 GiB long is only as long as the file."""
    ends = written(path, batch(1))
    with path.open("ab") as file:
        file.write(HEADER.pack(MAGIC, 2**32 - 1, 0) + b"x")
    assert [end for _, end in found(path)] == ends[1:]


def test_a_file_made_to_be_searched_for_ever_is_damage(path: Path) -> None:
    """Half a million overlapping frames, each of which would have to be hashed to the end."""
    written(path)
    with path.open("ab") as file:
        file.write(b"x" + b"".join(HEADER.pack(MAGIC, 1_000_000, 0) for _ in range(500_000)))
    with pytest.raises(CorruptError, match="CHANGELOG_CORRUPT"):
        found(path)


@pytest.mark.parametrize("payload", [b"", b"x" * 100, struct.pack("<Ii", 0xFFFFFFFF, 2**31 - 1), b"\xff" * 64])
def test_a_frame_that_is_no_arrow_message_is_damage(path: Path, payload: bytes) -> None:
    """Though its checksum is right."""
    (end,) = written(path)
    with path.open("ab") as file:
        file.write(HEADER.pack(MAGIC, len(payload), xxhash.xxh3_64_intdigest(payload, end | SEED)) + payload)
    with pytest.raises(CorruptError, match="CHANGELOG_CORRUPT"):
        found(path)


def test_a_batch_that_arrow_would_trip_over_is_damage(path: Path) -> None:
    """Offsets of a text column that point out of it."""
    (end,) = written(path)
    offsets = pa.py_buffer(struct.pack("<iii", 0, 1_000_000, 3))
    texts = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abc")])
    good = pa.concat_batches([batch(1), batch(2)])
    payload = pa.RecordBatch.from_arrays([texts, *good.columns[1:]], schema=SCHEMA).serialize().to_pybytes()
    with path.open("ab") as file:
        file.write(HEADER.pack(MAGIC, len(payload), xxhash.xxh3_64_intdigest(payload, end | SEED)) + payload)
    with pytest.raises(CorruptError, match="CHANGELOG_CORRUPT"):
        found(path)


def test_another_format_version_is_not_passed_over(path: Path) -> None:
    """A newer file must not look empty to an older release: its records would be lost."""
    written(path, batch(1))
    path.write_bytes(path.read_bytes().replace(b"SSLOG\x03", b"SSLOG\x04"))
    with pytest.raises(UnsupportedError, match="CHANGELOG_FORMAT"):
        found(path)


def by_the_specification(data: bytes) -> Iterator[tuple[Any, int]]:
    """A reader written from docs/log-format.md alone: batches, rows (key, value, time) and marks."""
    position, schema, version = 0, None, None
    while len(data) - position >= 20:
        magic, length, checksum = struct.unpack_from("<8sIQ", data, position)
        payload = data[position + 20 : position + 20 + length]
        name, found, kind, masked = struct.unpack("5sBBB", magic)
        if name != b"SSLOG" or found not in (2, 3) or version not in (None, found) or len(payload) < length:
            return
        version = found
        seed = position + {0: 0, 1: 2**63, 2: 2**62}[kind] + (2**61 if masked else 0) + (2**60 if version == 3 else 0)
        if xxhash.xxh3_64(payload, seed=seed).intdigest() != checksum:
            return
        position += 20 + length
        if masked:
            payload = bytes(byte ^ payload[number % 8] for number, byte in enumerate(payload[8:]))
        if kind == 2:
            yield struct.unpack("<Q", payload)[0], position
        elif kind == 1:
            time, width, has_value = struct.unpack_from("<qI?", payload)
            yield (payload[13 : 13 + width], payload[13 + width :] if has_value else None, time), position
        elif schema is None:
            schema = pa.ipc.read_schema(pa.py_buffer(payload))
        else:
            yield pa.ipc.read_record_batch(pa.py_buffer(payload), schema), position


def test_the_specification_is_enough_to_read_a_changelog(path: Path) -> None:
    """Batches and rows with and without long runs of zeros, and sync marks."""
    many = pa.concat_batches([batch(1, bytes(5_000)), batch(2, bytes(range(256)))])
    writer = ChangelogWriter(path, SCHEMA, made_at=7)
    for item in (batch(1), batch(2, None), many):
        writer.append(item)
    writer.sync()
    writer.close()
    *found, (mark, _) = by_the_specification(path.read_bytes())
    assert found == list(read_changelog(path, SCHEMA))
    assert mark == found[-1][1]
    rows = path.with_name("rows")
    rows_written(rows)
    assert [row for row, _ in by_the_specification(rows.read_bytes()) if isinstance(row, tuple)] == [
        *ROWS[:2],
        *ROWS[2:],
    ]


OLD = (
    b"SSLOG\x02\0\0",
    b"SSLOG\x02\1\0",
)


def old_file(path: Path, rows: list[tuple[bytes, bytes, int]]) -> list[int]:
    """A changelog of format version 2, as the specification had it; returns the ends of its frames."""
    data, ends = b"", []
    payloads = [(OLD[0], 0, ROW_SCHEMA.serialize().to_pybytes())]
    payloads += [
        (OLD[1], 1 << 63, struct.pack("<qI?", time, len(key), True) + key + value) for key, value, time in rows
    ]
    for magic, seed, payload in payloads:
        checksum = xxhash.xxh3_64_intdigest(payload, len(data) | seed)
        data += struct.pack("<8sIQ", magic, len(payload), checksum) + payload
        ends.append(len(data))
    path.write_bytes(data)
    return ends


def test_files_of_format_version_2_are_read(path: Path) -> None:
    """Their damage is refused, also where it looks like a power cut: nothing in them says what was forced to disk."""
    rows = [(b"key-%d" % number, bytes(200), number) for number in range(30)]
    ends = old_file(path, rows)
    assert rows_of(path) == rows
    data = path.read_bytes()
    path.write_bytes(data[: ends[3]] + bytes(ends[4] - ends[3]) + data[ends[4] :])
    with pytest.raises(CorruptError, match=f"byte {ends[3]}:"):
        rows_of(path)
    path.write_bytes(data[: ends[-1] - 1])
    assert rows_of(path) == rows[:-1]


def test_a_file_of_format_version_2_is_not_appended_to(path: Path) -> None:
    """A frame of version 3 would be damage to older releases."""
    old_file(path, [(b"a", b"1", 1)])
    file = try_adopt(path)
    assert file is not None
    found = read_changelog(path, ROW_SCHEMA)
    assert len(list(found)) == 1
    file.take_note(found)
    assert not file.resume(ROW_SCHEMA)
    file.close()


def test_a_living_owner_keeps_its_changelog(path: Path) -> None:
    writer = ChangelogWriter(path, SCHEMA)
    assert try_adopt(path) is None
    writer.close()
    lock = try_adopt(path)
    assert lock is not None
    assert try_adopt(path) is None
    lock.close()


def test_a_killed_owner_leaves_its_changelog_to_be_adopted(path: Path) -> None:
    """All it acknowledged is there."""
    with subprocess.Popen(command("changelog_owner", path), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"acknowledged\n"
        assert try_adopt(path) is None
        owner.kill()
        owner.wait()
    lock = try_adopt(path)
    assert lock is not None
    assert [item.to_pydict() for item, _ in read_changelog(path, None)] == [{"n": [0]}, {"n": [1]}, {"n": [2]}]
    lock.close()


def test_a_changelog_is_never_seen_without_its_owner(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changelog is locked and has its schema when its name appears; else another handle could adopt and remove it."""
    seen = []
    link = os.link

    def look(source: Path, target: Path) -> None:
        link(source, target)
        seen.append((try_adopt(target), target.stat().st_size > HEADER.size))

    monkeypatch.setattr(os, "link", look)
    ChangelogWriter(path, SCHEMA).close()
    assert seen == [(None, True)]


def test_what_is_gone_can_not_be_adopted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a file that was discarded, nor one that is discarded between our open and our lock."""
    writer = ChangelogWriter(path, SCHEMA)
    lock = fcntl.flock

    def discarding(file: Any, operation: int) -> None:
        writer.discard()
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", discarding)
    assert try_adopt(path) is None
    monkeypatch.undo()
    assert try_adopt(path) is None
    assert list(path.parent.iterdir()) == []


def test_a_write_in_parts_is_finished(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system takes at most 2 GiB at once."""
    monkeypatch.setattr(os, "writev", lambda file, parts: os.write(file, b"".join(parts)[:10]))
    ends = written(path, batch(1), batch(2))
    assert [end for _, end in found(path)] == ends[1:]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "disk full"), KeyboardInterrupt()])
def test_a_failed_write_leaves_a_file_that_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """The disk fills in the middle of a frame, or Ctrl-C comes: the next append is good."""
    writer = ChangelogWriter(path, SCHEMA)
    first = writer.append(batch(1))

    def fail(file: int, parts: list[bytes]) -> int:
        os.write(file, b"".join(parts)[:30])
        raise error

    monkeypatch.setattr(os, "writev", fail)
    with pytest.raises(type(error)):
        writer.append(batch(2))
    monkeypatch.undo()
    assert path.stat().st_size == first
    last = writer.append(batch(3))
    writer.close()
    assert found(path) == [(batch(1).to_pydict(), first), (batch(3).to_pydict(), last)]


def test_a_batch_too_large_for_a_frame_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = ChangelogWriter(path, SCHEMA)
    monkeypatch.setattr(changelog_writer, "MAX_PAYLOAD", 100)
    with pytest.raises(InvalidInputError, match="BATCH_TOO_LARGE"):
        writer.append(batch(1))
    writer.close()


def test_sync_reaches_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file, and the first time its folder and the store's: a synced file without a name is lost. What was synced
    once is not synced again."""
    folder = tmp_path / "store" / "changelog"
    folder.mkdir(parents=True)
    files = [folder / "a.changelog", folder, folder.parent]
    synced: list[str] = []
    fsync = os.fsync

    def note(file: int) -> None:
        synced.extend(path.name for path in files if os.path.samestat(os.fstat(file), path.stat()))
        fsync(file)

    monkeypatch.setattr(os, "fsync", note)
    writer = ChangelogWriter(files[0], SCHEMA)
    writer.append(batch(1))
    assert synced == []
    writer.sync()
    writer.sync()
    writer.append(batch(2))
    writer.sync()
    writer.close()
    assert synced == ["a.changelog", "changelog", "store", "a.changelog"]


ROWS = [(b"a", b"1", 5), (b"b", None, -6), (b"", b"", 2**62), (b"k" * 300, b"v" * 70_000, 0)]


def rows_written(path: Path) -> list[int]:
    writer = ChangelogWriter(path, ROW_SCHEMA)
    ends = [path.stat().st_size]
    ends += [writer.append_row(*row) for row in ROWS[:2]]
    ends.append(
        writer.append(pa.RecordBatch.from_pylist([{"key": b"bulk", "value": b"x", "timestamp": 7}], ROW_SCHEMA))
    )
    ends += [writer.append_row(*row) for row in ROWS[2:]]
    writer.close()
    return ends


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for item, _ in read_changelog(path, ROW_SCHEMA) for row in item.to_pylist()]


def test_rows_and_batches_come_back_in_their_order(path: Path) -> None:
    ends = rows_written(path)
    assert rows_of(path) == [*ROWS[:2], (b"bulk", b"x", 7), *ROWS[2:]]
    assert [end for _, end in read_changelog(path, ROW_SCHEMA)] == [ends[2], ends[3], ends[5]]


def test_single_rows_come_in_bounded_batches(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changelog, "ROWS_PER_BATCH", 3)
    writer = ChangelogWriter(path, ROW_SCHEMA)
    ends = [writer.append_row(b"%d" % number, None, number) for number in range(8)]
    assert [(item.num_rows, end) for item, end in read_changelog(path, ROW_SCHEMA)] == [
        (3, ends[2]),
        (3, ends[5]),
        (2, ends[7]),
    ]


def test_a_torn_row_was_never_acknowledged(path: Path) -> None:
    ends = rows_written(path)
    data = path.read_bytes()
    for size in [*range(ends[1], ends[2]), ends[4] + 1, ends[5] - 1]:
        path.write_bytes(data[:size])
        whole = sum(end <= size for end in ends) - 1
        assert rows_of(path) == [*ROWS[:2], (b"bulk", b"x", 7), *ROWS[2:]][:whole]


def test_a_damaged_row_is_damage(path: Path) -> None:
    ends = rows_written(path)
    data = path.read_bytes()
    for position in range(ends[0], ends[2]):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        with pytest.raises(CorruptError, match="CHANGELOG_CORRUPT"):
            rows_of(path)


@pytest.mark.parametrize(
    "payload", [b"", b"short", struct.pack("<qI?", 1, 5, True) + b"four", struct.pack("<qI?", 1, 1, False) + b"kv"]
)
def test_a_row_that_lies_about_its_lengths_is_damage(path: Path, payload: bytes) -> None:
    end = rows_written(path)[-1]
    frame = HEADER.pack(ROW_MAGIC, len(payload), xxhash.xxh3_64_intdigest(payload, end | ROW_SEED)) + payload
    path.write_bytes(path.read_bytes() + frame)
    with pytest.raises(CorruptError, match="CHANGELOG_CORRUPT"):
        rows_of(path)
