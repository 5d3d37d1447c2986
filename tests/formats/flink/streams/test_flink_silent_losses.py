"""Damage that other readers take for the end of the data: rows are refused, and never fewer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.flink.fixtures import copied, manifest
from support.flink.metadata_bytes import utf
from support.flink.snapshot_reads import files_at, rocks_of

from statestore.formats.errors import CorruptError
from statestore.formats.flink.flink_options import FlinkSettings
from statestore.formats.flink.opening import open_source
from statestore.formats.flink.snapshot.handles import InPlace
from statestore.formats.places.locations import parse_location


def _manifests(place: Path) -> Iterator[bytes]:
    for _, handle in rocks_of(files_at(place).metadata()):
        for name, each in handle.private:
            if name.startswith("MANIFEST-") and isinstance(each, InPlace):
                yield each.data


def _count(place: Path, name: str) -> int:
    source = open_source(parse_location(str(place)), FlinkSettings())
    at = source.at(name, source.newest(name))
    return sum(rows.num_rows for part in at.parts(()) for rows in at.rows(part, (), ()))


def test_a_record_of_the_manifest_that_seems_to_break_off_is_refused(tmp_path: Path) -> None:
    run = "rescaled-small"
    place = copied(run, tmp_path) / manifest(run)["snapshots"][0]["path"]
    assert _count(place, "alarms.processing_user-timers") > 0
    file = place / "_metadata"
    data = file.read_bytes()
    for found in _manifests(place):
        data = data.replace(found, found[:5] + b"\x7f" + found[6:])  # the high byte of the first record's length
    file.write_bytes(data)
    with pytest.raises(CorruptError, match=r"MANIFEST-0.* of RocksDB: byte 0: found a record of type 1 and"):
        _count(place, "alarms.processing_user-timers")


def test_elements_of_a_state_that_the_header_does_not_have_are_refused(tmp_path: Path) -> None:
    run = "operator-rocksdb"
    place = copied(run, tmp_path) / manifest(run)["snapshots"][0]["path"]
    assert _count(place, "buffers.split") > 0
    file = place / "_metadata"
    data = file.read_bytes()
    file.write_bytes(data.replace(utf("split") + b"\0", utf("splat") + b"\0"))
    with pytest.raises(CorruptError, match="found elements of operator state 'splat', expected only those of"):
        _count(place, "buffers.unreadable")
