"""An engine in a few lines, as another package would add it: a folder with ``toy.txt`` and a JSON file a version.

``<version>.json`` is {"time": milliseconds, "rows": [{"k": text, "field": text, "n": number}, ...]}; a row is named by
``k`` and ``field``. With "places": n it has a second state, lists of numbers by ``k``, which lie in
``queues/<version>-<place>.json``: [{"k": text, "item": number or null}, ...]. Rows lie where `place_of` says, and each
list is in order. With "totals": [{"k": text, "count": number}, ...] it has a third one, which follows from the first:
how many rows each ``k`` has.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.engines import (
    CopiedFile,
    EditOptions,
    EditPlan,
    Engine,
    EngineOption,
    Filter,
    Folder,
    Location,
    Part,
    Source,
    StateAt,
    StateEdit,
    StateFile,
    StateInfo,
    Target,
    Version,
    open_location,
)
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError

COLUMNS = pa.schema([("k", pa.string()), ("field", pa.string()), ("n", pa.int64())])
QUEUES = pa.schema([("k", pa.string()), ("item", pa.float64()), ("place", pa.int32())])
TOTALS = pa.schema([("k", pa.string()), ("count", pa.int64())])
INFOS = {
    info.name: info
    for info in (
        StateInfo("toys", "toy map", COLUMNS, ("k",), ("k", "field")),
        StateInfo("queues", "toy lists", QUEUES, ("k",), (), lookups=(("k",),), placement=("place",)),
        StateInfo("totals", "toy counts", TOTALS, ("k",), ("k",)),
    )
}
Row = dict[str, Any]


def place_of(k: str, places: int) -> int:
    """The place of ``places`` where the list of ``k`` lies."""
    return sum(k.encode()) % places


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
        newest = read_version(self.folder, max(self.times)) if self.times else {}
        return ["toys", *(["queues"] if "places" in newest else []), *(["totals"] if "totals" in newest else [])]

    def info(self, state: str) -> StateInfo:
        return INFOS[state]

    def versions(self, state: str, numbers: Sequence[int] | None = None) -> Sequence[Version]:
        return [Version(n, self.times[n] * 1000) for n in (sorted(self.times) if numbers is None else numbers)]

    def at(self, state: str, version: int) -> StateAt:
        return QueuesAt(self.folder, version) if state == "queues" else ToysAt(self.folder, version, state)

    def slices(self, state: str, versions: Sequence[int], filters: Sequence[Filter]) -> Sequence[Any]:
        return self.at(state, versions[0]).parts(filters) if state == "queues" else [None]

    def slice_parts(self, at: StateAt, piece: Any, filters: Sequence[Filter]) -> Sequence[Part]:
        return at.parts(filters) if piece is None else [piece]

    def edit_plan(self, version: int, edits: Sequence[StateEdit], options: EditOptions) -> EditPlan:
        self.check_readable("toys", version)
        return plan_of(self, version, edits, options)


@dataclass(frozen=True)
class ToysAt(StateAt):
    """The state ``toys`` or ``totals`` of a version."""

    folder: Path
    number: int
    state: str = "toys"

    @property
    def version(self) -> int:
        return self.number

    @property
    def schema(self) -> pa.Schema:
        return INFOS[self.state].columns

    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        found = read_version(self.folder, self.number)["rows" if self.state == "toys" else self.state]
        yield pa.RecordBatch.from_pylist(found, self.schema)

    def files(self) -> Iterator[StateFile]:
        file = self.folder / f"{self.number}.json"
        yield StateFile(file.name, "json", file.stat().st_size, None, self.number, self.number)


@dataclass(frozen=True)
class Place:
    """The part of the lists that lies in one place."""

    number: int

    @property
    def rows(self) -> None: ...


@dataclass(frozen=True)
class QueuesAt(StateAt):
    """The state ``queues`` of a version."""

    folder: Path
    number: int

    @property
    def version(self) -> int:
        return self.number

    @property
    def schema(self) -> pa.Schema:
        return QUEUES

    def parts(self, filters: Sequence[Filter]) -> Sequence[Part]:
        places = read_version(self.folder, self.number)["places"]
        found = set(range(places))
        for each in filters:
            if each.column in ("k", "place") and each.op in ("=", "in"):
                values = each.value if each.op == "in" else [each.value]
                found &= {value if each.column == "place" else place_of(value, places) for value in values}
        return [Place(number) for number in sorted(found)]

    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        found = json.loads((self.folder / queue_path(self.number, part.number)).read_text())
        yield pa.RecordBatch.from_pylist([{**row, "place": part.number} for row in found], QUEUES)

    def files(self) -> Iterator[StateFile]:
        for place in self.parts(()):
            assert isinstance(place, Place)
            path = queue_path(self.number, place.number)
            yield StateFile(path, "json", (self.folder / path).stat().st_size, None, self.number, self.number)


def read_version(folder: Path, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{number}.json").read_text())
    return found


def queue_path(number: int, place: int) -> str:
    return f"queues/{number}-{place}.json"


# Edits


@dataclass(frozen=True)
class ToyPlan(EditPlan):
    """An edit, with the files that it writes: their JSON by path."""

    folder: Folder
    number: int
    target_number: int
    written: Mapping[str, Any]
    kept: tuple[CopiedFile, ...]
    follows: tuple[StateEdit, ...] = ()
    told: tuple[str, ...] = field(default=())

    @property
    def version(self) -> int:
        return self.number

    @property
    def target_version(self) -> int:
        return self.target_number

    @property
    def notes(self) -> Sequence[str]:
        return self.told

    @property
    def followed(self) -> Sequence[StateEdit]:
        return self.follows

    def copied(self) -> Iterator[CopiedFile]:
        return iter(self.kept)

    def parts(self) -> Sequence[Any]:
        return sorted(self.written)

    def written_bytes(self) -> int:
        return sum(len(json.dumps(each)) for each in self.written.values())

    def write(self, part: Any, target: Target) -> Mapping[str, int]:
        return _create(target, part, json.dumps(self.written[part]).encode())

    def finish(self, target: Target) -> Mapping[str, int]:
        return _create(target, "toy.txt", self.folder.read_small("toy.txt"))

    def opened(self, path: str) -> Source:
        return open_toys(Location(path), {})


def _create(target: Target, path: str, content: bytes) -> Mapping[str, int]:
    with target.create(path) as stream:
        stream.write(content)
    return {path: len(content)}


def plan_of(source: Toys, version: int, edits: Sequence[StateEdit], options: EditOptions) -> ToyPlan:
    """The plan that writes the version anew, or one more, and the places whose lists the edits touch."""
    if options.settings.get("toy_depth", "1") == "0":
        raise InvalidInputError(ErrorCode.INVALID_OPTION, "option toy_depth is '0'; expected a depth of 1 or more")
    root = Folder(*open_location(Location(str(source.folder))))
    content = read_version(source.folder, version)
    target = version + 1 if options.as_batch else version
    written: dict[str, Any] = {}
    for edit in edits:
        if edit.state == "toys":
            content["rows"] = _edited(content["rows"], edit)
        elif edit.state == "queues":
            written |= _edited_queues(source.folder, version, target, content["places"], edit)
        else:
            raise InvalidInputError(ErrorCode.EDIT_REFUSED, f"{edit.state} follows from toys; edit these")
    follows = _totals(content)
    written[f"{target}.json"] = {**content, "time": content["time"] + (1 if options.as_batch else 0)}
    older = [n for n in source.times if n < version or (options.as_batch and n == version)]
    paths = [(f"{n}.json", f"{n}.json") for n in older]
    for n in [*older, version]:
        into = target if n == version and n not in older else n
        places = read_version(source.folder, n).get("places", 0)
        paths += [(queue_path(n, place), queue_path(into, place)) for place in range(places)]
    if options.as_batch:
        paths += [(queue_path(version, each), queue_path(target, each)) for each in range(content.get("places", 0))]
    kept = {path: _copied(root, name, path) for name, path in paths if path not in written}
    return ToyPlan(root, version, target, written, tuple(kept.values()), follows)


def _copied(root: Folder, name: str, path: str) -> CopiedFile:
    *folders, last = name.split("/")
    folder = root.at(*folders)
    return CopiedFile(folder, last, path, folder.files()[last])


def _edited(rows: Iterable[Row], edit: StateEdit) -> list[Row]:
    """The rows after the edit: units that are changed are at the end."""
    units: dict[str, list[Row]] = {}
    for row in rows:
        units.setdefault(_unit(row, edit), []).append(row)
    removed: dict[str, list[Row]] = {}
    for row in edit.removed.to_pylist():
        removed.setdefault(_unit(row, edit), []).append(row)
    for unit, expected in removed.items():
        if json.dumps(units.pop(unit, [])) != json.dumps(expected):
            raise InvalidInputError(ErrorCode.EDIT_REFUSED, f"{edit.state} has other rows of {unit} than the edit says")
    for row in edit.added.to_pylist():
        if (unit := _unit(row, edit)) in units:
            raise InvalidInputError(ErrorCode.EDIT_REFUSED, f"{edit.state} has rows of {unit} already")
    return [*(row for rows_of_unit in units.values() for row in rows_of_unit), *edit.added.to_pylist()]


def _unit(row: Row, edit: StateEdit) -> str:
    return json.dumps([row[name] for name in edit.unit])


def _edited_queues(folder: Path, version: int, target: int, places: int, edit: StateEdit) -> dict[str, Any]:
    found = {}
    names = edit.removed["k"].to_pylist() + edit.added["k"].to_pylist()
    for place in {place_of(k, places) for k in names}:
        here = pa.array([place_of(k, places) == place for k in names], pa.bool_())
        removed, added = here[: edit.removed.num_rows], here[edit.removed.num_rows :]
        mine = StateEdit(edit.state, edit.unit, edit.removed.filter(removed), edit.added.filter(added))
        rows = json.loads((folder / queue_path(version, place)).read_text())
        found[queue_path(target, place)] = _edited(rows, mine)
    return found


def _totals(content: dict[str, Any]) -> tuple[StateEdit, ...]:
    """Bring the totals of a version's content in line with its rows; return what becomes of them."""
    if "totals" not in content:
        return ()
    before = {row["k"]: row for row in content["totals"]}
    after = {k: {"k": k, "count": count} for k, count in Counter(row["k"] for row in content["rows"]).items()}
    content["totals"] = list(after.values())
    sides = [
        pa.Table.from_pylist([row for k, row in ours.items() if row != theirs.get(k)], TOTALS)
        for ours, theirs in ((before, after), (after, before))
    ]
    return (StateEdit("totals", ("k",), *sides),) if any(side.num_rows for side in sides) else ()


# What the package brings


def recognises(folder: Folder) -> bool:
    return "toy.txt" in folder.files()


def open_toys(location: Location, options: Mapping[str, str]) -> Source:
    files = Path(location.path).glob("*.json")
    numbered = {int(file.stem): file for file in files if file.stem.isdigit()}
    return Toys(Path(location.path), {n: json.loads(file.read_text())["time"] for n, file in numbered.items()})


OPTIONS = (EngineOption("toyVersion", "int", "the same as versionAsOf", alias="versionAsOf"),)
SETTINGS = (
    EngineOption("toy_depth", "int", "how deep the toys lie; nothing follows from it"),
    EngineOption("toy_loud", "bool", "whether they are heard"),
)
ENGINE = Engine("toy", "folder of toys", OPTIONS, recognises, open_toys, edit_settings=SETTINGS)
