"""One task's part of a snapshot: its key groups, states and files. It is sent and logged as JSON."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from statestore.catalog.keyed.rows.state_spec import StateDescriptor, spec_from_json
from statestore.catalog.log.log_checks import COUNT, check_choice, check_file_ref, check_int, check_text
from statestore.formats.segments.segment_meta import FileRef, file_ref_from_json, to_json

SnapshotKind = Literal["full", "incremental"]

SEGMENTS, SHARED, PRIVATE, EMITTED = "segments", "shared", "private", "emitted"
STORED_FILE = re.compile(rf"(?:{SEGMENTS}|{SHARED}|{PRIVATE}|{EMITTED})/[0-9a-f]{{32}}(?:\.[a-z]+)?")
TABLE_FILE = re.compile(r"[0-9]{1,20}\.sst")
PRIVATE_FILE = re.compile(r"CURRENT|(?:MANIFEST|OPTIONS)-[0-9]{1,20}")
_GROUPS = range((1 << 15) + 1)


@dataclass(frozen=True)
class StateSegment:
    """The rows of a state in a full snapshot. Group ``first_group + i`` has rows ``groups[i]`` to ``groups[i + 1]``."""

    file: FileRef
    first_group: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class SnapshotPart:
    """One task's part of a snapshot.

    ``states`` are all registered states. In a full snapshot ``tables`` has the states with rows. In an incremental one
    ``shared`` has its table files and ``private`` the other files, by their names in the database. ``reused`` are the
    files of ``shared`` that the snapshot on which it builds already has. ``next_position`` is behind all list
    positions. ``backend`` identifies the backend that took the snapshot.
    """

    kind: SnapshotKind
    backend: str
    key_groups: range
    states: tuple[StateDescriptor, ...]
    next_position: int
    tables: Mapping[str, StateSegment]
    shared: Mapping[str, FileRef]
    private: Mapping[str, FileRef]
    reused: frozenset[str] = frozenset()

    def files(self) -> dict[str, FileRef]:
        """Return all files that the part names, by name."""
        table_files = [table.file for table in self.tables.values()]
        return {file.name: file for file in (*table_files, *self.shared.values(), *self.private.values())}

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "backend": self.backend,
            "key_groups": [self.key_groups.start, self.key_groups.stop],
            "states": [spec.to_json() for spec in self.states],
            "next_place": self.next_position,
            "tables": {
                name: {"file": to_json(table.file), "first_group": table.first_group, "groups": list(table.groups)}
                for name, table in self.tables.items()
            },
            "shared": {name: to_json(file) for name, file in self.shared.items()},
            "private": {name: to_json(file) for name, file in self.private.items()},
            "reused": sorted(self.reused),
        }


def part_from_json(fields: Mapping[str, Any]) -> SnapshotPart:
    """Return the part in the JSON of `SnapshotPart.to_json`. Raises ValueError, KeyError or TypeError for other
    JSON."""
    first, stop = fields["key_groups"]
    part = SnapshotPart(
        fields["kind"],
        fields["backend"],
        range(first, stop),
        tuple(spec_from_json(spec) for spec in fields["states"]),
        fields["next_place"],
        {
            name: StateSegment(file_ref_from_json(table["file"]), table["first_group"], tuple(table["groups"]))
            for name, table in fields["tables"].items()
        },
        {name: file_ref_from_json(file) for name, file in fields["shared"].items()},
        {name: file_ref_from_json(file) for name, file in fields["private"].items()},
        frozenset(fields["reused"]),
    )
    _check(part)
    return part


def check_stored(file: FileRef) -> None:
    """Raise ValueError unless the file lies in one of a keyed store's folders and has the checksums of its length."""
    if not STORED_FILE.fullmatch(file.name):
        raise ValueError(f"file name is {file.name!r}, expected one in {SEGMENTS}, {SHARED}, {PRIVATE} or {EMITTED}")
    check_file_ref(file)


def _check(part: SnapshotPart) -> None:
    check_choice(part.kind, get_args(SnapshotKind), "kind of a snapshot")
    check_text(part.backend, "backend of a snapshot")
    groups = part.key_groups
    check_int(groups.start, _GROUPS, "first key group")
    check_int(groups.stop, range(groups.start + 1, _GROUPS.stop), "end of the key groups")
    check_int(part.next_position, COUNT, "next place")
    names = {spec.name for spec in part.states}
    for file in part.files().values():
        check_stored(file)
    for name, table in part.tables.items():
        _check_table(name, table, groups, names)
    for pattern, files in ((TABLE_FILE, part.shared), (PRIVATE_FILE, part.private)):
        for name in files:
            if not pattern.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a database's file")
    if not part.reused <= part.files().keys():
        raise ValueError("reused files are not in the snapshot")


def _check_table(name: str, table: StateSegment, groups: range, names: set[str]) -> None:
    if name not in names:
        raise ValueError(f"rows of {name!r}, which is not a state of the snapshot")
    if table.first_group != groups.start or len(table.groups) != len(groups) + 1:
        raise ValueError(f"key groups of the rows of {name!r} differ from those of the snapshot")
    for count in table.groups:
        check_int(count, COUNT, f"offset of a key group of {name!r}")
    if table.groups[0] != 0 or any(a > b for a, b in itertools.pairwise(table.groups)):
        raise ValueError(f"offsets of the key groups of {name!r} do not ascend")
