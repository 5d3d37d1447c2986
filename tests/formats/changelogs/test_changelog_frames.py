"""The example changelog of format version 3: written once, readable for ever; docs/log-format.md shows its frames.

``PYTHONPATH=tests python tests/formats/changelogs/test_changelog_frames.py``
writes it anew; only a new format version may need that.
"""

from __future__ import annotations

import re

import pyarrow as pa
from support.paths import DATA, DOCS

from statestore.formats.changelogs.changelog import ROW_SCHEMA, read_changelog
from statestore.formats.changelogs.changelog_frames import HEADER
from statestore.formats.changelogs.changelog_writer import ChangelogWriter

FILE = DATA / "changelog-3" / "example.changelog"
PAGE = DOCS / "log-format.md"
BULK = [(b"a", b"1", 5), (b"b", None, 6)]
ZEROS = (b"c", bytes(600), 7)
LAST = (b"d", b"4", 8)


def test_it_is_read() -> None:
    found = read_changelog(FILE, ROW_SCHEMA)
    assert [tuple(row.values()) for batch, _ in found for row in batch.to_pylist()] == [*BULK, ZEROS, LAST]
    assert (found.version, found.made_at, found.is_whole, found.passed_over) == (3, 41, True, 0)
    assert found.synced == found.mark_end - 28 < found.end


def test_the_page_shows_its_frames() -> None:
    data = FILE.read_bytes()
    headers, at = [], 0
    while at < len(data):
        headers.append(data[at : at + HEADER.size])
        at += HEADER.size + HEADER.unpack_from(data, at)[1]
    shown = [
        bytes.fromhex(found) for found in re.findall(r"^    ((?:[0-9a-f]{2} ?){20})  [0-9]", PAGE.read_text(), re.M)
    ]
    assert shown == headers and at == len(data)


def _write() -> None:
    FILE.parent.mkdir(exist_ok=True)
    FILE.unlink(missing_ok=True)
    writer = ChangelogWriter(FILE, ROW_SCHEMA, made_at=41)
    rows = [dict(zip(ROW_SCHEMA.names, row, strict=True)) for row in BULK]
    writer.append(pa.RecordBatch.from_pylist(rows, ROW_SCHEMA))
    writer.append_row(*ZEROS)
    writer.sync()
    writer.append_row(*LAST)
    writer.close()


if __name__ == "__main__":
    _write()
