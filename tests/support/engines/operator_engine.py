"""An engine whose operators hold keyed state: a folder with ``operators.json`` and an Arrow file for each part.

It places keys as no keyed store of ours does: row ``i`` of a state is in key group ``i`` modulo their number.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.engines import (
    Engine,
    Filter,
    Folder,
    KeyedOperator,
    Location,
    OperatorState,
    Source,
    StateAt,
    StateInfo,
    Version,
)

FILE = "operators.json"
PARTS = 3


@dataclass(frozen=True)
class MadeState:
    """A state with its rows; ``rows`` has the columns that `OperatorState` lists."""

    name: str
    kind: Any
    rows: pa.Table


def write_operators(
    folder: Path, operators: Mapping[str, Sequence[MadeState]], key_groups: int = 16, parallelism: int = 2
) -> Path:
    """Write a folder with these operators, whose ids are their names in capitals."""
    folder.mkdir(parents=True)
    about = []
    for operator, states in operators.items():
        listed = []
        for state in states:
            name = f"{operator}.{state.name.replace('/', '_')}"
            groups = [row % key_groups for row in range(state.rows.num_rows)]
            placed = state.rows.append_column("key_group", pa.array(groups, pa.int32()))
            for part in range(PARTS):
                with pa.OSFile(str(folder / f"{name}.{part}.arrow"), "wb") as sink:
                    piece = placed.take(pa.array(range(part, placed.num_rows, PARTS), pa.int64()))
                    with pa.ipc.new_file(sink, placed.schema) as writer:
                        writer.write_table(piece, 1000)
            listed.append({"name": state.name, "state": name, "kind": state.kind})
        about.append({"name": operator, "key_groups": key_groups, "parallelism": parallelism, "states": listed})
    (folder / FILE).write_text(json.dumps(about))
    return folder


@dataclass(frozen=True)
class Operators(Source):
    folder: Path

    @property
    def path(self) -> str:
        return str(self.folder)

    @property
    def identity(self) -> str:
        return "operators-1"

    def states(self) -> Sequence[str]:
        return [state.state for operator in self.keyed_operators() for state in operator.states]

    def info(self, state: str) -> StateInfo:
        return StateInfo(state, "keyed", OperatorStateAt(self.folder, state).schema, ("key",), (), (), ("key_group",))

    def versions(self, state: str, numbers: Sequence[int] | None = None) -> Sequence[Version]:
        return [Version(7, 1_000_000)]

    def at(self, state: str, version: int) -> StateAt:
        return OperatorStateAt(self.folder, state)

    def keyed_operators(self, version: int | None = None) -> Sequence[KeyedOperator]:
        return [
            KeyedOperator(
                each["name"],
                each["key_groups"],
                each["parallelism"],
                tuple(OperatorState(**state) for state in each["states"]),
                (each["name"].upper(),),
            )
            for each in json.loads((self.folder / FILE).read_text())
        ]


@dataclass(frozen=True)
class FilePart:
    number: int
    rows: int | None = None


@dataclass(frozen=True)
class OperatorStateAt(StateAt):
    folder: Path
    state: str

    @property
    def version(self) -> int:
        return 7

    @property
    def schema(self) -> pa.Schema:
        return self._file(0).schema

    def parts(self, filters: Sequence[Filter]) -> Sequence[FilePart]:
        return [FilePart(number) for number in range(PARTS)]

    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        file = self._file(part.number)
        for number in range(file.num_record_batches):
            yield file.get_batch(number).select([name for name in file.schema.names if name in columns])

    def _file(self, number: int) -> Any:
        return pa.ipc.open_file(pa.memory_map(str(self.folder / f"{self.state}.{number}.arrow")))


def recognises(folder: Folder) -> bool:
    return FILE in folder.files()


def open_operators(location: Location, options: Mapping[str, str]) -> Source:
    return Operators(Path(location.path))


ENGINE = Engine("operators", "folder of operators", (), recognises, open_operators)
