"""What a task wrote of its part of a snapshot: which key groups, states and files. It travels and is logged as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from statestore.catalog.stores.keyed.state_spec import StateSpec, spec_from_json

SnapshotKind = Literal["full", "incremental"]


@dataclass(frozen=True)
class StoredFile:
    """A file in the store's folder, with its size and XXH3 checksum (hex)."""

    name: str
    bytes: int
    checksum: str


@dataclass(frozen=True)
class StateFile:
    """The rows of a state in a full snapshot. Group ``first_group + i`` has rows ``groups[i]`` to ``groups[i + 1]``."""

    file: StoredFile
    first_group: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Handle:
    """A task's part. ``states`` are all that were registered; of a full snapshot ``tables`` has those with rows, of an
    incremental one ``shared`` its table files and ``private`` the others, by their names in the database.
    ``next_place`` is behind all places in lists. ``backend`` tells backends apart, whose table files may be shared."""

    kind: SnapshotKind
    backend: str
    key_groups: range
    states: tuple[StateSpec, ...]
    next_place: int
    tables: Mapping[str, StateFile]
    shared: Mapping[str, StoredFile]
    private: Mapping[str, StoredFile]

    def files(self) -> dict[str, StoredFile]:
        """All files that it names, by name."""
        found = [table.file for table in self.tables.values()]
        return {file.name: file for file in (*found, *self.shared.values(), *self.private.values())}

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "backend": self.backend,
            "key_groups": [self.key_groups.start, self.key_groups.stop],
            "states": [spec.to_json() for spec in self.states],
            "next_place": self.next_place,
            "tables": {
                name: {"file": vars(table.file), "first_group": table.first_group, "groups": list(table.groups)}
                for name, table in self.tables.items()
            },
            "shared": {name: vars(file) for name, file in self.shared.items()},
            "private": {name: vars(file) for name, file in self.private.items()},
        }


def handle_from_json(found: Mapping[str, Any]) -> Handle:
    """The way back, of JSON that was checked."""
    return Handle(
        found["kind"],
        found["backend"],
        range(*found["key_groups"]),
        tuple(spec_from_json(spec) for spec in found["states"]),
        found["next_place"],
        {
            name: StateFile(StoredFile(**table["file"]), table["first_group"], tuple(table["groups"]))
            for name, table in found["tables"].items()
        },
        {name: StoredFile(**file) for name, file in found["shared"].items()},
        {name: StoredFile(**file) for name, file in found["private"].items()},
    )
