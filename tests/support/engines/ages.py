"""An engine whose only version keeps the past of its rows: a folder with ``ages.json``.

The file is {"from": milliseconds or null, "rows": [{"k": text, "n": number, "from": milliseconds or null, "to":
milliseconds or null}, ...]}; ``from`` of the file is the moment before which rows were removed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.engines import Engine, Filter, Folder, HoldsPast, Location, Source, StateAt, StateInfo, Version, mask

TIME = pa.timestamp("us", tz="UTC")
COLUMNS = pa.schema([("k", pa.string()), ("n", pa.int64()), ("valid_from", TIME)])
PAST = pa.schema([*COLUMNS, ("valid_to", TIME)])


@dataclass(frozen=True)
class Ages(Source):
    folder: Path

    @property
    def path(self) -> str:
        return str(self.folder)

    @property
    def identity(self) -> str:
        return "ages-1"

    def states(self) -> Sequence[str]:
        return ["ages"]

    def info(self, state: str) -> StateInfo:
        return StateInfo(state, "map with its past", COLUMNS, ("k",), ("k",), has_past=True)

    def versions(self, state: str, numbers: Sequence[int] | None = None) -> Sequence[Version]:
        return [Version(1, None)]

    def at(self, state: str, version: int) -> StateAt:
        return AgesAt(self.folder / "ages.json")


@dataclass(frozen=True)
class LetterPart:
    """The rows whose keys begin with a letter."""

    letter: str
    rows: int | None = None


@dataclass(frozen=True)
class AgesAt(HoldsPast):
    file: Path

    @property
    def version(self) -> int:
        return 1

    @property
    def schema(self) -> pa.Schema:
        return COLUMNS

    def parts(self, filters: Sequence[Filter]) -> Sequence[LetterPart]:
        return [LetterPart(letter) for letter in sorted({row["k"][:1] for row in self._content["rows"]})]

    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        for batch in self.past_rows(part, columns, filters):
            yield batch.filter(batch["valid_to"].is_null())

    def past_from(self) -> int | None:
        first: int | None = self._content["from"]
        return None if first is None else first * 1000

    def past_rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        rows = [row for row in self._content["rows"] if row["k"][:1] == part.letter]
        cells = {
            "k": [row["k"] for row in rows],
            "n": [row["n"] for row in rows],
            "valid_from": [micros(row["from"]) for row in rows],
            "valid_to": [micros(row["to"]) for row in rows],
        }
        batch = pa.RecordBatch.from_pydict(cells, PAST)
        selected = mask(filters, batch) if filters else None
        names = [name for name in PAST.names if name in columns or name.startswith("valid_")]
        yield (batch if selected is None else batch.filter(selected)).select(names)

    @property
    def _content(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.file.read_text())
        return found


def micros(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds * 1000


def recognises(folder: Folder) -> bool:
    return "ages.json" in folder.files()


def open_ages(location: Location, options: Mapping[str, str]) -> Source:
    return Ages(Path(location.path))


ENGINE = Engine("ages", "folder of ages", (), recognises, open_ages)
