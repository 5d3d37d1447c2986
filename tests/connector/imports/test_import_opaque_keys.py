"""Imports of Flink state whose keys only the job's classes decode: never bytes of a key and more as a key."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from support.flink.metadata_bytes import Operator, i32, in_place, key_groups, metadata, subtask
from support.flink.snapshot_bytes import LONG, header, mapped, snapshot, state

from statestore.connector.imports.import_keyed import import_keyed
from statestore.formats.errors import UnsupportedError

FIVE = struct.pack(">q", 5)
OWN = snapshot("com.example.MoneySerializer$Snap", 1)


def _savepoint(folder: Path, key: bytes, description: bytes, stored: bytes, value: bytes) -> Path:
    """A canonical savepoint of one state with one entry, in key group 0."""
    head = header(key, description)
    entry = i32(len(stored) + 1) + b"\x80" + stored + i32(len(value)) + value
    keyed = key_groups(7, 0, [len(head)], in_place(head + b"\0\0" + entry + b"\xff\xff"))
    folder.mkdir()
    (folder / "_metadata").write_bytes(metadata(Operator(uid="op", subtasks=[subtask(keyed=keyed)])))
    return folder


def test_keys_in_front_of_map_keys_are_refused_until_their_type_is_given(tmp_path: Path) -> None:
    description = state("m", mapped(LONG, LONG), "MAP")
    source = _savepoint(tmp_path / "source", OWN, description, FIVE + b"\0" + FIVE, b"\0" + FIVE)
    with pytest.raises(UnsupportedError, match="m: its keys cannot be told from what follows them"):
        import_keyed(source, tmp_path / "warehouse" / "store")
    done = import_keyed(source, tmp_path / "warehouse" / "store", type="op.m.key=bigint")
    assert [each.described for each in done.states] == ["map of bigint -> bigint"]


def test_keys_in_front_of_namespaces_of_the_job_are_refused(tmp_path: Path) -> None:
    source = _savepoint(tmp_path / "source", LONG, state("n", LONG, namespace=OWN), FIVE + b"abc", FIVE)
    with pytest.raises(UnsupportedError, match="n: its keys cannot be told from what follows them"):
        import_keyed(source, tmp_path / "warehouse" / "store")
