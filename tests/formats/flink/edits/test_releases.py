"""Snapshots of each release of Flink, written anew by edits: their rows are there, and an erased key is not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.archives import unpacked
from support.flink.edited import planned, state_edit, written
from support.flink.snapshot_reads import rows_of, source_at
from support.paths import DATA

from statestore.formats.flink.columns.value_bytes import plain_values
from statestore.formats.flink.source import FlinkSource
from statestore.formats.flink.state_at import KeyedAt

RELEASES = (
    *("2.3.0", "1.20.3", "1.11.6", "1.12.7", "1.13.6", "1.14.6", "1.15.4", "1.16.3", "1.17.2", "1.18.1", "1.19.3"),
    *("2.0.1", "2.1.1", "2.2.0"),
)
KEY = "user-3"


def shown(source: FlinkSource, *, without: str = "") -> dict[str, list[str]]:
    """The rows of each state as texts, without those of a key."""
    found = {}
    for state in source.states():
        rows = rows_of(source, state)
        names = [name for name in rows.schema.names if name not in ("stored_bytes", "key_group")]
        columns = [plain_values(rows.column(name).combine_chunks()) for name in names]
        texts = map(repr, zip(*columns, strict=True))
        is_keyed = isinstance(source.at(state, source.newest(state)), KeyedAt)
        found[state] = sorted(text for text in texts if not (is_keyed and without and repr(without) in text))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_an_erased_key_is_gone_and_all_others_have_moved(release: str, tmp_path: Path) -> None:
    """Of each form of a snapshot, every third by turns."""
    root = unpacked(DATA / "flink" / "releases.tar.xz") / release
    places = sorted(found.parent for found in root.rglob("_metadata"))[RELEASES.index(release) % 3 :: 3]
    assert len(places) > 2
    for number, place in enumerate(places):
        source = source_at(place)
        edits = []
        for state in source.states():
            rows = rows_of(source, state)
            if isinstance(source.at(state, source.newest(state)), KeyedAt) and pa.types.is_string(
                rows.schema.field("key").type
            ):
                mine = rows.filter(pa.compute.equal(rows["key"], KEY))
                edits.append(state_edit(source, state, mine, mine.slice(0, 0)))
        assert sum(edit.removed.num_rows for edit in edits) > 3
        copy = written(planned(source, edits, settings={"max_parallelism": "300"}), tmp_path / f"moved-{number}")
        assert shown(copy) == shown(source, without=KEY), place
        plain = written(planned(source), tmp_path / f"plain-{number}")
        assert shown(plain) == shown(source), place
