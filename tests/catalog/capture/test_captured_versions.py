"""Captures of random histories: every captured version against the history itself, with versions that are purged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore.catalog.capture.step import capture_next, newest_captured, open_captured, table_of
from statestore.catalog.catalog import Catalog, connect
from statestore.catalog.stores.versioned.captured_store import CapturedStore
from statestore.formats.engine import Source, StateAt, StateInfo, Version, WholePart
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, InvalidInputError, UnsupportedError
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter
from statestore.formats.written import APPEND, PUT, REMOVE, WRITE, Written

COLUMNS = {
    "counts": pa.schema([("k", pa.string()), ("n", pa.float64()), ("place", pa.int32())]),
    "floats": pa.schema([("k", pa.float64()), ("n", pa.int64())]),
    "lists": pa.schema([("k", pa.string()), ("timestamp", pa.int64())]),
    "bag": pa.schema([("k", pa.string()), ("x", pa.float64())]),
}
INFOS = {
    "counts": StateInfo("counts", "counts", COLUMNS["counts"], ("k",), ("k",), placement=("place",)),
    "floats": StateInfo("floats", "counts", COLUMNS["floats"], ("k",), ("k",)),
    "lists": StateInfo("lists", "lists", COLUMNS["lists"], ("k",), (), number="_copy"),
    "bag": StateInfo("bag", "bag", COLUMNS["bag"], ("k",), ()),
}
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Story(Source):
    """A state of a job with the rows of each version; those in ``gone`` cannot be read. ``tells``: the versions tell
    what they wrote."""

    state: str
    past: Mapping[int, Sequence[Row]]
    gone: frozenset[int] = frozenset()
    tells: bool = False
    times: Mapping[int, int] = field(default_factory=dict)
    info_: StateInfo | None = None

    @property
    def path(self) -> str:
        return "/story"

    @property
    def identity(self) -> str:
        return "story-1"

    def states(self) -> Sequence[str]:
        return [self.state]

    def info(self, state: str) -> StateInfo:
        return self.info_ or INFOS[state]

    def versions(self, state: str, numbers: Sequence[int] | None = None) -> Sequence[Version]:
        shown = sorted(self.past) if numbers is None else numbers
        return [Version(n, self.time(n), n not in self.gone) for n in shown]

    def time(self, number: int) -> int:
        return self.times.get(number, 1_000_000 * (number + 1))

    def at(self, state: str, version: int) -> StateAt:
        return StoryAt(self, version)

    def written(self, state: str, version: Version, before: Version) -> Written | None:
        return StoryWritten(self, before.number, version.number) if self.tells else None


@dataclass(frozen=True)
class StoryAt(StateAt):
    story: Story
    number: int

    @property
    def version(self) -> int:
        return self.number

    @property
    def schema(self) -> pa.Schema:
        return self.story.info(self.story.state).columns

    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        assert self.number not in self.story.gone
        info, rows = self.story.info(self.story.state), self.story.past[self.number]
        batch = batch_of(self.schema, rows)
        if info.number is not None and info.number in columns:
            batch = batch.append_column(info.number, pa.array(numbers_of(rows), pa.int64()))
        for begin in range(0, batch.num_rows, 3):
            yield batch.slice(begin, 3)


@dataclass(frozen=True)
class StoryWritten(Written):
    """Writes of a version: of each list that changed its new elements where it only grew, else all of them."""

    story: Story
    old: int
    new: int

    @property
    def group(self) -> tuple[str, ...]:
        return ("k",)

    def parts(self) -> Sequence[WholePart]:
        return [WholePart()]

    def rows(self, part: Any) -> Iterator[pa.RecordBatch]:
        before, after = (groups_of(self.story.past[number]) for number in (self.old, self.new))
        rows, kinds = [], []
        for key in sorted({*before, *after}):
            old, new = before.get(key, []), after.get(key, [])
            if old == new:
                continue
            columns = self.story.info(self.story.state).columns
            if not new:
                rows.append((old[0][0], *[None] * (len(columns) - 1)))
                kinds.append(REMOVE)
                continue
            grows = self.story.state == "lists" and old == new[: len(old)]
            rows += new[len(old) :] if grows else new
            kinds += [APPEND if grows else PUT] * (len(new) - len(old) if grows else len(new))
        info = self.story.info(self.story.state)
        batch = batch_of(info.columns, rows)
        names = [name for name in batch.schema.names if name not in info.placement]
        columns = [pa.array(kinds, pa.int8()), *(batch.column(name) for name in names)]
        for begin in range(0, len(rows), 2):
            yield pa.RecordBatch.from_arrays([each.slice(begin, 2) for each in columns], names=[WRITE, *names])


def batch_of(schema: pa.Schema, rows: Sequence[Row]) -> pa.RecordBatch:
    filled = [(*row, *[0] * (len(schema) - len(row))) for row in rows]
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in filled], schema)


def groups_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each key; 0.0 and -0.0 are two."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(repr(row[0]), []).append(row)
    return found


def numbers_of(rows: Sequence[Row]) -> list[int]:
    seen: Counter[Any] = Counter()
    found = []
    for row in rows:
        found.append(seen[row[0]])
        seen[row[0]] += 1
    return found


KEYS = st.sampled_from(["a", "b", "c", "d", "e"])
NUMBERS = st.sampled_from([0.0, 1.5, -2.0, None])


def histories(state: str) -> st.SearchStrategy[list[list[Row]]]:
    """Return random versions of a state, each the whole state."""
    if state == "counts":
        rows: st.SearchStrategy[list[Row]] = st.dictionaries(KEYS, NUMBERS).map(lambda each: list(each.items()))
    elif state == "floats":
        keys = st.sampled_from([0.0, -0.0, 1.5, float("inf")])
        rows = st.dictionaries(keys.map(repr), st.integers(0, 3)).map(lambda f: [(float(k), n) for k, n in f.items()])
    elif state == "lists":
        lists = st.dictionaries(KEYS, st.lists(st.integers(0, 2), min_size=1, max_size=4))
        rows = lists.map(lambda each: [(key, item) for key, items in each.items() for item in items])
    else:
        rows = st.lists(st.tuples(KEYS | st.none(), NUMBERS), max_size=8)
    return st.lists(rows, min_size=1, max_size=6)


def captured(catalog: Catalog, source: Story) -> tuple[list[int], CapturedStore]:
    """Capture what is there with a handle of its own; return the versions that it took."""
    store = open_captured(catalog, "s", source, source.state)
    assert store is not None
    taken = []
    while (step := capture_next(store, source)) is not None:
        taken.append(step.source.version)
    return taken, store


def bag_at(store: CapturedStore, query: Query) -> Counter[str]:
    table = table_of(store)
    names = [name for name in table.schema(query).names if name not in ("valid_from", "valid_to")]
    found: Counter[str] = Counter()
    for split in table.splits(query):
        for batch in table.read(split, query):
            found.update(repr(tuple(row[name] for name in names)) for row in batch.to_pylist())
    return found


def bag_of(source: Story, number: int, store: CapturedStore) -> Counter[str]:
    table = table_of(store)
    names = [name for name in table.schema(Query()).names if name not in ("valid_from", "valid_to")]
    own = [field.name for field in COLUMNS[source.state]]
    order = [own.index(name.removeprefix("state_")) for name in names]
    return Counter(repr(tuple(row[place] for place in order)) for row in source.past[number])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tells", [False, True])
@pytest.mark.parametrize("state", list(COLUMNS))
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_every_captured_version_is_that_of_the_source(
    state: str, tells: bool, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Versions come in turns, and old ones go meanwhile. What is captured reads as it was; what is not is a gap."""
    history = dict(enumerate(data.draw(histories(state))))
    if state == "floats":
        history = {n: [(float(k), v) for k, v in {repr(k): v for k, v in rows}.items()] for n, rows in history.items()}
    catalog = connect(tmp_path_factory.mktemp("w"))
    gone: set[int] = set()
    taken: list[int] = []
    shown = 0
    while shown < len(history):
        shown = data.draw(st.integers(shown + 1, len(history)))
        gone |= data.draw(st.sets(st.integers(0, shown - 2))) if shown > 1 else set()
        source = Story(state, {n: history[n] for n in range(shown)}, frozenset(gone), tells)
        new, store = captured(catalog, source)
        assert new == [n for n in range(shown) if n not in gone and (not taken or n > taken[-1])]
        taken += new
    log = table_of(store).log_state()
    commits = {each.version: commit for commit, each in enumerate(log.versions.source) if each is not None}
    assert list(commits) == taken
    missing = set(range(len(history))) - set(taken)
    told = {n for gap in log.gaps for n in range(gap.first, gap.last + 1)}
    assert told == {n for n in missing if not taken or n < taken[-1]}
    for number, commit in commits.items():
        want = bag_of(source, number, store)
        assert bag_at(store, Query(version=commit)) == want
        assert bag_at(store, Query(as_of=source.time(number))) == want
    assert captured(catalog, source)[0] == []


def test_two_captures_of_one_source_take_each_version_once(tmp_path: Path) -> None:
    """A second handle that has not seen the commits of the first goes on behind them."""
    catalog = connect(tmp_path)
    source = Story("counts", {n: [("a", float(n)), (f"k{n}", 1.0)] for n in range(6)})
    first, second = (open_captured(catalog, "s", source, "counts") for _ in range(2))
    assert first is not None and second is not None
    steps = [capture_next(each, source) for each in (first, second, second, first, second, first)]
    assert [step.source.version for step in steps if step is not None] == [0, 1, 2, 3, 4, 5]
    assert capture_next(first, source) is None and capture_next(second, source) is None
    for number in range(6):
        assert bag_at(first, Query(as_of=source.time(number))) == bag_of(source, number, first)


def test_a_version_whose_clock_was_set_back_takes_effect_when_it_came(tmp_path: Path) -> None:
    source = Story("counts", {n: [("a", float(n))] for n in range(3)}, times={0: 10_000, 1: 5_000, 2: 7_000})
    taken, store = captured(connect(tmp_path), source)
    assert taken == [0, 1, 2]
    assert bag_at(store, Query()) == bag_of(source, 2, store) == bag_at(store, Query(as_of=10_000))


def test_a_source_that_went_back_is_refused(tmp_path: Path) -> None:
    catalog = connect(tmp_path)
    source = Story("counts", {n: [("a", float(n))] for n in range(4)})
    captured(catalog, source)
    with pytest.raises(ConflictError, match="went back") as raised:
        captured(catalog, replace(source, past={n: source.past[n] for n in range(2)}))
    assert raised.value.code == ErrorCode.CAPTURE_CONFLICT
    with pytest.raises(ConflictError, match="another one than was captured"):
        captured(catalog, replace(source, times={3: 9_000_000}))


def test_a_store_of_another_source_is_refused(tmp_path: Path) -> None:
    catalog = connect(tmp_path)
    catalog.create_store("s", key={"k": "string"}, value={"n": "double"}).close()
    with pytest.raises(ConflictError, match="keeps no state of an engine") as raised:
        captured(catalog, Story("counts", {0: []}))
    assert raised.value.code == ErrorCode.CAPTURE_CONFLICT


def test_columns_that_the_store_lacks_stop_the_capture_and_lose_nothing(tmp_path: Path) -> None:
    catalog = connect(tmp_path)
    source = Story("counts", {0: [("a", 1.0)]})
    captured(catalog, source)
    wider = replace(INFOS["counts"], columns=COLUMNS["counts"].append(pa.field("more", pa.string())))
    with pytest.raises(UnsupportedError, match="column more string") as raised:
        captured(catalog, replace(source, past={0: [("a", 1.0)], 1: [("b", 2.0)]}, info_=wider))
    assert raised.value.code == ErrorCode.CAPTURE_UNSUPPORTED
    store = open_captured(catalog, "s", source, "counts")
    assert store is not None and bag_at(store, Query()) == Counter([repr(("a", 1.0))])


def test_a_null_in_a_key_is_refused_where_keys_have_none(tmp_path: Path) -> None:
    catalog = connect(tmp_path)
    source = Story("counts", {0: [(None, 1.0), ("a", 2.0)]})
    with pytest.raises(InvalidInputError, match="null"):
        captured(catalog, source)
    store = open_captured(catalog, "nulls", source, "counts", has_nulls=True)
    assert store is not None and capture_next(store, source) is not None
    assert bag_at(store, Query()) == bag_of(source, 0, store)
    assert newest_captured(store) is not None
