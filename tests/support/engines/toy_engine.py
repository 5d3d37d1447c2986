"""An engine in a few lines, as another package would add it: a folder with ``toy.txt`` and a JSON file a version.

``<version>.json`` is {"time": milliseconds, "rows": [{"k": text, "field": text, "n": number}, ...]}; a row is named by
``k`` and ``field``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.formats.engine import Engine, EngineOption, Source, StateAt, StateFile, StateInfo, Version
from statestore.formats.places.folder import Folder
from statestore.formats.places.locations import Location
from statestore.formats.values.filters import Filter

COLUMNS = pa.schema([("k", pa.string()), ("field", pa.string()), ("n", pa.int64())])


@dataclass(frozen=True)
class Toys(Source):
    folder: Path
    times: dict[int, int]

    @property
    def path(self) -> str:
        return str(self.folder)

    @property
    def identity(self) -> str:
        return (self.folder / "toy.txt").read_text()

    def states(self) -> Sequence[str]:
        return ["toys"]

    def info(self, state: str) -> StateInfo:
        return StateInfo(state, "toy map", COLUMNS, ("k",), ("k", "field"))

    def versions(self, state: str, numbers: Sequence[int] | None = None) -> Sequence[Version]:
        return [Version(n, self.times[n] * 1000) for n in (sorted(self.times) if numbers is None else numbers)]

    def at(self, state: str, version: int) -> StateAt:
        return ToysAt(self.folder / f"{version}.json", version)


@dataclass(frozen=True)
class ToysAt(StateAt):
    file: Path
    number: int

    @property
    def version(self) -> int:
        return self.number

    @property
    def schema(self) -> pa.Schema:
        return COLUMNS

    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist(json.loads(self.file.read_text())["rows"], COLUMNS)

    def files(self) -> Iterator[StateFile]:
        yield StateFile(self.file.name, "json", self.file.stat().st_size, None, self.number, self.number)


def recognises(folder: Folder) -> bool:
    return "toy.txt" in folder.files()


def open_toys(location: Location, options: Mapping[str, str]) -> Source:
    files = Path(location.path).glob("*.json")
    return Toys(Path(location.path), {int(file.stem): json.loads(file.read_text())["time"] for file in files})


OPTIONS = (EngineOption("toyVersion", "int", "the same as versionAsOf", alias="versionAsOf"),)
ENGINE = Engine("toy", "folder of toys", OPTIONS, recognises, open_toys)
