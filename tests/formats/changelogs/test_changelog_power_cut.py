"""After a power cut: pages that were never forced to the disk may be lost in any order, and a changelog is still read
up to the first record that is lost. Damage to what was acknowledged never passes for that.

The disk is modelled by pages: after the cut each holds what it held at its last fsync or at any moment since, and so
does the file's length.
"""

from __future__ import annotations

import logging
import random
from bisect import bisect_right
from pathlib import Path

import pyarrow as pa
import pytest

import statestore
from statestore.formats.changelogs.changelog import ROW_SCHEMA, read_changelog
from statestore.formats.changelogs.changelog_writer import ChangelogWriter, try_adopt
from statestore.formats.errors import CorruptError

PAGE = 4096
Row = tuple[bytes, bytes | None, int]


class Recorded:
    """A changelog that is written at random, and the possible contents of the disk at each moment."""

    def __init__(self, path: Path, rng: random.Random, steps: int) -> None:
        self.path, self.rng = path, rng
        self.writer = ChangelogWriter(path, ROW_SCHEMA, made_at=rng.choice((-1, 12)))
        self.rows: list[Row] = []
        self.ends: list[int] = []  # of the frame of each row
        self.moments = [0, self.writer.end]  # lengths of the file since the last sync
        self.synced = 0
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        kind = self.rng.random()
        if kind < 0.12:
            self.synced = self.writer.end
            self.writer.sync()
            self.moments = [self.synced, self.writer.end]
        elif kind < 0.25:
            batch = [self.row() for _ in range(self.rng.randrange(1, 40))]
            columns = [pa.array(column, field.type) for column, field in zip(zip(*batch), ROW_SCHEMA)]  # noqa: B905
            end = self.writer.append(pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA))
            self.rows += batch
            self.ends += [end] * len(batch)
            self.moments.append(end)
        else:
            self.rows.append(self.row())
            self.ends.append(self.writer.append_row(*self.rows[-1]))
            self.moments.append(self.ends[-1])

    def row(self) -> Row:
        """A row whose value is noise or zeros, which look like lost pages."""
        size = self.rng.choice((0, 10, 100, 700, 3_000, 9_000))
        value = bytes(size) if self.rng.random() < 0.5 else self.rng.randbytes(size)
        return b"key-%d" % len(self.rows), self.rng.choice((value, None)), self.rng.randrange(1000)

    def cut_power(self) -> bytes:
        """The file as a power cut may leave it on the disk."""
        data = self.path.read_bytes()
        pages = []
        for start in range(0, self.rng.choice(self.moments), PAGE):
            held = self.rng.choice(self.moments) if self.rng.random() < 0.9 else self.moments[0]
            pages.append(data[start : min(start + PAGE, max(held, self.moments[0]))].ljust(PAGE, b"\0"))
        length = self.rng.choice([length for length in self.moments if length <= len(pages) * PAGE])
        return b"".join(pages)[:length]

    def count(self, end: int) -> int:
        """The number of rows in the frames before ``end``."""
        return bisect_right(self.ends, end)


def rows_of(path: Path) -> list[Row]:
    return [tuple(row.values()) for item, _ in read_changelog(path, ROW_SCHEMA) for row in item.to_pylist()]


def test_what_was_synced_is_read_and_nothing_is_made_up(tmp_path: Path) -> None:
    """Opening never refuses, and what is read is a beginning of what was written, not shorter than the last sync."""
    lost, passed_over = 0, 0
    for seed in range(40):
        rng = random.Random(seed)
        path = tmp_path / f"{seed}.changelog"
        recorded = Recorded(path, rng, rng.randrange(1, 60))
        for number in range(8):
            cut = tmp_path / f"{seed}-{number}.changelog"
            cut.write_bytes(recorded.cut_power())
            found = rows_of(cut)
            assert recorded.rows[: len(found)] == found, (seed, number)
            assert len(found) >= recorded.count(recorded.synced), (seed, number)
            lost += len(found) < len(recorded.rows)
            passed_over += cut.stat().st_size > 0 and _passed_over(cut) > 0
            cut.unlink()
        recorded.writer.close()
    assert lost > 100 and passed_over > 20, "the model is worth something"


def _passed_over(path: Path) -> int:
    found = read_changelog(path, ROW_SCHEMA)
    list(found)
    return found.passed_over


def test_a_flipped_bit_in_what_was_acknowledged_is_damage(tmp_path: Path) -> None:
    """Synced or not, zeros or not: refused; but for the last frame, which may never have been finished."""
    for seed in range(4):
        rng = random.Random(seed)
        path = tmp_path / f"{seed}.changelog"
        recorded = Recorded(path, rng, rng.randrange(2, 25))
        recorded.writer.close()
        data = path.read_bytes()
        spots = [rng.randrange(len(data)) for _ in range(40)]
        spots += [end + offset for end in [0, *recorded.ends[:-1]] for offset in (0, 5, 6, 7, 8, 12, 19, 20)]
        for spot in filter(len(data).__gt__, spots):
            flipped = bytearray(data)
            flipped[spot] ^= 1 << rng.randrange(8)
            path.write_bytes(flipped)
            try:
                found = rows_of(path)
            except CorruptError:
                continue
            kept = recorded.count(spot)
            last = recorded.ends[kept] if kept < len(recorded.ends) else 0
            assert found == recorded.rows[:kept], (seed, spot)
            assert last in (0, *recorded.ends[-1:]), (seed, spot)


def test_a_lost_page_of_what_was_synced_is_damage(tmp_path: Path) -> None:
    """A sync mark behind it says so. (The page that the mark lies in cannot be verified.)"""
    path = tmp_path / "a.changelog"
    writer = ChangelogWriter(path, ROW_SCHEMA)
    for number in range(100):
        writer.append_row(b"key-%d" % number, b"v" * 100, number)
    synced = writer.end
    writer.sync()
    while writer.end < 40_000:
        writer.append_row(b"key", b"v" * 100, 0)
    writer.close()
    data = path.read_bytes()
    for page in range(len(data) // PAGE):
        path.write_bytes(data[: page * PAGE] + bytes(PAGE) + data[(page + 1) * PAGE :])
        if page < synced // PAGE:
            with pytest.raises(CorruptError, match="CHANGELOG_CORRUPT"):
                rows_of(path)
        else:
            assert len(rows_of(path)) >= 60


def test_the_first_page_may_be_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that lost its schema has nothing left, and an error says so."""
    path = tmp_path / "a.changelog"
    writer = ChangelogWriter(path, ROW_SCHEMA)
    while writer.end < 2 * PAGE:
        writer.append_row(b"key", b"value", 0)
    writer.close()
    path.write_bytes(bytes(PAGE) + path.read_bytes()[PAGE:])
    size = path.stat().st_size
    with caplog.at_level(logging.WARNING, "statestore"):
        assert rows_of(path) == []
    assert f"from byte 0 on was forced to the disk; these {size} bytes are passed over" in caplog.text
    file = try_adopt(path)
    assert file is not None
    found = read_changelog(path, ROW_SCHEMA)
    list(found)
    file.take_note(found)
    assert not file.resume(ROW_SCHEMA), "nothing is appended behind it"
    file.close()


def test_a_page_may_lack_less_than_a_sector(tmp_path: Path) -> None:
    """A record that begins a few bytes before the page's end, and of which only the next page was written."""
    path = tmp_path / "a.changelog"
    for room in (1, 5, 19, 20, 21, 300, 511):
        writer = ChangelogWriter(path, ROW_SCHEMA)
        start = PAGE - room
        writer.append_row(b"k", b"v" * (start - writer.end - 34), 0)
        assert writer.end == start
        for _ in range(100):
            writer.append_row(b"lost", b"v" * 1_000, 0)
        writer.close()
        data = path.read_bytes()
        path.write_bytes(data[:start] + bytes(room) + data[PAGE:])
        assert len(rows_of(path)) == 1, room
        path.write_bytes(data[:start] + b"\1" + bytes(room - 1) + data[PAGE:])
        with pytest.raises(CorruptError):
            rows_of(path)
        path.unlink()


def test_a_store_opens_after_a_power_cut_and_verify_remarks_on_it(tmp_path: Path) -> None:
    with statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "bigint"}) as store:
        for number in range(300):
            store.put(f"key-{number:03}", number, timestamp=1000 + number)
    (file,) = (tmp_path / "s/changelog").glob("*.changelog")
    data = bytearray(file.read_bytes()[:-28])  # the mark that closing leaves; the power went before
    data[PAGE : 2 * PAGE] = bytes(PAGE)
    file.write_bytes(data)
    (found,) = statestore.verify(tmp_path)
    assert found.ok and any("were never" in note or "passed over" in note for note in found.notes)
    with statestore.connect(tmp_path).open_store("s") as store:
        store.commit()
        rows = sorted(row["v"] for row in store.scan().read_all().to_pylist())
    assert rows == list(range(len(rows))) and 0 < len(rows) < 300
    assert not list((tmp_path / "s/changelog").iterdir())
