"""A StateTable over plain Python rows, without any storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.filters import mask

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("item", pa.string()), ("price", pa.float64()), ("valid_from", TIME), ("valid_to", TIME)])
Row = tuple[str, float | None, int, int | None]


@dataclass(frozen=True)
class MemorySplit:
    version: int
    rows: int
    exact: bool


@dataclass
class MemoryTable(StateTable):
    """``commits[v]`` are all rows (item, price, from ms, to ms or None) as version ``v`` has them.

    Open and closed rows are splits of their own. ``asked`` records the queries that were planned.
    """

    called: str
    commits: list[Sequence[Row]]
    key_columns: tuple[str, ...] = ("item",)
    row_key: tuple[str, ...] = ("item",)
    asked: list[Query] = field(default_factory=list)
    read_columns: list[tuple[str, ...] | None] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.called

    @property
    def identity(self) -> str:
        return self.called

    def kept_versions(self) -> tuple[int, int]:
        return 0, len(self.commits) - 1

    def versions(self) -> pa.Table:
        return pa.table({"version": pa.array(range(len(self.commits)), pa.int64())})

    def pin(self) -> MemoryTable:
        return self

    def change_start(self) -> int:
        return self.kept_versions()[0]

    def known_from(self, version: int) -> int | None:
        return None

    def lookup_floor(self, version: int) -> int | None:
        return None

    def schema(self, query: Query) -> pa.Schema:
        names = SCHEMA.names if query.columns is None else query.columns
        return pa.schema([SCHEMA.field(n) for n in names])

    def splits(self, query: Query) -> Sequence[MemorySplit]:
        self.asked.append(query)
        newest = self.kept_versions()[1]
        version = newest if query.version is None else query.version
        if not 0 <= version <= newest:
            raise NotFoundError(ErrorCode.VERSION_NOT_FOUND, f"no version {version}; 0 to {newest} can be read")
        rows = len(self.commits[version])
        return [MemorySplit(version, rows, True), MemorySplit(version, rows, False)]

    def read(self, split: MemorySplit, query: Query) -> Iterator[pa.RecordBatch]:
        self.read_columns.append(query.columns)
        rows = [r for r in self.commits[split.version] if (r[3] is None) == split.exact]
        if split.exact:
            rows = [r for r in rows if _alive(r, query)]
        batch = _batch(rows)
        live = pa.array([_alive(r, query) for r in rows], pa.bool_())
        selected = mask(query.filters, batch) if query.filters else None
        if selected is not None:
            batch, live = batch.filter(selected), live.filter(selected)
        shown = batch.select(self.schema(query).names)
        yield shown.filter(live)


@dataclass
class MemoryWarehouse:
    held: dict[str, MemoryTable]

    def tables(self) -> list[str]:
        return sorted(n for n in self.held if "$" not in n)

    def metadata_tables(self) -> list[str]:
        return sorted(n for n in self.held if "$" in n)

    def schemas(self) -> list[str]:
        return []

    def open(self, name: str) -> MemoryTable:
        if name not in self.held:
            raise NotFoundError(ErrorCode.TABLE_NOT_FOUND, f"no table {name!r}; there are {', '.join(self.tables())}")
        return self.held[name]


def _alive(row: Row, query: Query) -> bool:
    if query.mode == "history":
        return True
    if query.as_of is None:
        return row[3] is None
    return row[2] * 1000 <= query.as_of and (row[3] is None or query.as_of < row[3] * 1000)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    times = [pa.array([None if t is None else t * 1000 for t in c], pa.int64()).cast(TIME) for c in columns[2:]]
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[0], pa.string()), pa.array(columns[1], pa.float64()), *times], schema=SCHEMA
    )
