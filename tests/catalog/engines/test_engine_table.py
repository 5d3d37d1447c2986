"""Rules that hold for every engine, checked against the true rows of each version."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from support.engines.cases import CASES, Case, Row, rows_of
from support.engines.toys import write_package
from support.parameters import mostly_slow

import statestore
from statestore.catalog.engines.engine_table import EngineTable
from statestore.catalog.reads.table import Table
from statestore.formats.state_table import Mode, Query
from statestore.formats.values.times import to_datetime

QUICK = ["toy", "flink rescaled", "keyed without its first snapshots", "spark spark4.3.0-agg__hdfs"]
MARKS = {"insert": 1, "update_postimage": 1, "update_preimage": -1, "delete": -1}
MODES: tuple[Mode, ...] = ("state", "history", "changes")
OF_CHANGES = ("valid_from", "_change_type", "_commit_version", "_commit_timestamp")
OF_HISTORY = ("valid_from", "valid_to", "_commit_version")


@dataclass(frozen=True)
class Subject:
    """One table of a case: its rows by version, and the times at which versions begin."""

    case: Case
    name: str
    read: Table
    states: dict[int, Counter[Row]]

    @property
    def table(self) -> EngineTable:
        found = self.read.table
        assert isinstance(found, EngineTable)
        return found

    @property
    def newest(self) -> int:
        return max(self.states)

    def moment(self, version: int) -> datetime:
        return to_datetime(self.case.times[version])

    def holds_at(self, moment: int) -> int:
        """The newest version that had begun at that moment."""
        return max(version for version in self.states if self.case.times[version] <= moment)


@pytest.fixture(scope="module", params=mostly_slow(list(CASES), QUICK))
def subjects(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Subject]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(write_package(tmp_path_factory.mktemp("package") / "toys.zip"))
        case = CASES[request.param](tmp_path_factory.mktemp("case"))
        found = statestore.inspect(case.path)
        assert set(case.states) <= set(found.tables())
        yield [Subject(case, name, found.table(name), states) for name, states in case.states.items()]


def without(table: pa.Table, names: tuple[str, ...]) -> list[Row]:
    """Rows as plain values without some columns, in the order of the table."""
    kept = table.drop_columns(list(names))
    return [next(iter(rows_of(kept.slice(n, 1)))) for n in range(kept.num_rows)]


def test_every_version_has_its_rows(subjects: list[Subject]) -> None:
    for subject in subjects:
        for version, rows in subject.states.items():
            assert rows_of(subject.read.scan(version=version).read_all()) == rows, (subject.name, version)
        assert rows_of(subject.read.scan().read_all()) == subject.states[subject.newest]


def test_a_moment_has_the_newest_version_that_had_begun(subjects: list[Subject]) -> None:
    for subject in subjects:
        for version in subject.states:
            moment = subject.case.times[version]
            expected = subject.states[subject.holds_at(moment)]
            assert rows_of(subject.read.scan(as_of=to_datetime(moment)).read_all()) == expected
        with pytest.raises(statestore.NotFoundError, match="TIME_NOT_KEPT"):
            subject.read.scan(as_of=to_datetime(min(subject.case.times[v] for v in subject.states) - 1000))


def test_no_two_rows_have_one_row_key(subjects: list[Subject]) -> None:
    for subject in subjects:
        keys = subject.table.row_key
        if keys:
            found = subject.read.scan().read_all().select(keys)
            assert set(rows_of(found).values()) <= {1}
        assert set(subject.table.key_columns) <= {*keys, *subject.read.schema.names}


def test_changes_lead_from_each_version_to_the_next(subjects: list[Subject]) -> None:
    for subject in subjects:
        changes = subject.read.changes().read_all()
        rows = without(changes, OF_CHANGES)
        versions, kinds = changes["_commit_version"].to_pylist(), changes["_change_type"].to_pylist()
        assert changes["_commit_timestamp"].equals(changes["valid_from"])
        known = sorted(subject.states)
        state: Counter[Row] = Counter() if subject.case.whole else Counter(subject.states[known[0]])
        for version in known if subject.case.whole else known[1:]:
            for row, by, kind in zip(rows, versions, kinds, strict=True):
                if by == version:
                    state[row] += MARKS[kind]
            found = placed(subject, state)
            assert +found == placed(subject, subject.states[version]) and min(found.values(), default=0) >= 0


def test_history_has_each_row_while_it_was_there(subjects: list[Subject]) -> None:
    for subject in subjects:
        history = subject.read.history().read_all()
        rows = without(history, OF_HISTORY)
        starts, ends = history["valid_from"].to_pylist(), history["valid_to"].to_pylist()
        for version in subject.states:
            moment = subject.moment(version)
            valid = Counter(
                row
                for row, start, end in zip(rows, starts, ends, strict=True)
                if (start is None or start <= moment) and (end is None or moment < end)
            )
            expected = subject.states[subject.holds_at(subject.case.times[version])]
            assert placed(subject, valid) == placed(subject, expected)
        unknown = [start for start in starts if start is None]
        assert not unknown or not subject.case.whole


def test_a_difference_leads_from_one_version_to_another(subjects: list[Subject]) -> None:
    for subject in subjects:
        names = subject.read.schema.names
        for old, new in [*pairwise(sorted(subject.states)), (subject.newest, min(subject.states))]:
            state = Counter(subject.states[old])
            found = subject.read.diff(old, new).read_all().to_pylist()
            for side, count in (("_old", state.subtract), ("_new", state.update)):
                there = [row for row in found if row[side] is not None]
                cells = [{name: row[name] if name in row else row[side][name] for name in names} for row in there]
                count(rows_of(pa.Table.from_pylist(cells, subject.read.schema)))
            assert placed(subject, +state) == placed(subject, subject.states[new])


def placed(subject: Subject, rows: Counter[Row]) -> Counter[Row]:
    """Rows without the placement columns, which a difference does not compare."""
    kept = [n for n, name in enumerate(subject.read.schema.names) if name not in subject.table.placement_columns]
    found: Counter[Row] = Counter()
    for row, count in rows.items():
        found[tuple(row[n] for n in kept)] += count
    return found


def test_a_key_finds_its_rows(subjects: list[Subject]) -> None:
    for subject in subjects:
        whole = subject.read.scan().read_all()
        if not whole.num_rows or not subject.table.key_columns:
            continue
        (key,) = subject.table.key_columns
        for row in whole.slice(0, 3).to_pylist():
            expected = sum(other == row[key] for other in whole[key].to_pylist())
            assert subject.read.scan(filter=(key, "=", row[key])).read_all().num_rows == expected
            assert all(h == row[key] for h in subject.read.history(key={key: row[key]}).read_all()[key].to_pylist())


def test_splits_travel_and_none_repeats_a_row(subjects: list[Subject]) -> None:
    for subject in subjects:
        for mode in MODES:
            query = Query(mode=mode)
            splits = subject.table.splits(query)
            travelled = [pickle.loads(pickle.dumps((subject.table, split))) for split in reversed(splits)]
            batches = [batch for table, split in travelled for batch in table.read(split, query)]
            schema = subject.table.schema(query)
            whole = {"history": subject.read.history, "changes": subject.read.changes}.get(mode, subject.read.scan)()
            assert rows_of(pa.Table.from_batches(batches, schema)) == rows_of(whole.read_all())
            assert all(len(pickle.dumps(split)) < 10_000 for split in splits)


def test_any_one_column_can_be_asked_for(subjects: list[Subject]) -> None:
    for subject in subjects:
        whole = subject.read.scan().read_all()
        for name in whole.column_names:
            assert rows_of(subject.read.scan(columns=[name]).read_all()) == rows_of(whole.select([name]))
        assert subject.read.scan(columns=[]).read_all().num_rows == whole.num_rows


def test_what_is_not_there_is_refused(subjects: list[Subject]) -> None:
    for subject in subjects:
        for version in (-1, subject.newest + 1000):
            with pytest.raises(statestore.NotFoundError, match="VERSION_NOT_FOUND"):
                subject.read.scan(version=version)
            with pytest.raises(statestore.NotFoundError, match="VERSION_NOT_FOUND"):
                subject.read.changes(version, version)
        wrong: Any = True
        with pytest.raises(statestore.InvalidInputError, match="INVALID_VERSION"):
            subject.read.scan(version=wrong)
        with pytest.raises(statestore.NotFoundError, match="COLUMN_NOT_FOUND"):
            subject.read.scan(columns=["no such column"])
        with pytest.raises(statestore.NotFoundError, match="COLUMN_NOT_FOUND"):
            subject.read.scan(filter=("no such column", "=", 1))


def test_metadata_says_what_is_there(subjects: list[Subject]) -> None:
    for subject in subjects:
        found = statestore.inspect(subject.case.path)
        versions = found.table(f"{subject.name}$versions").scan().read_all()
        assert set(subject.states) <= set(versions["version"].to_pylist())
        readable = found.table(f"{subject.name}$snapshots").scan(filter=("readable", "=", True)).read_all()
        assert readable["version"].to_pylist() == sorted(subject.states)
        columns = found.table(f"{subject.name}$schema").scan().read_all()
        assert columns["column"].to_pylist() == subject.read.schema.names
        assert {"key", "value"} <= {*columns["role"].to_pylist(), "value"}
        files = found.table(f"{subject.name}$segments").scan().read_all()
        assert files.num_rows > 0 and min(files["bytes"].to_pylist()) > 0
        summary = found.summary(subject.name)
        assert (summary.oldest_version, summary.version) == (min(subject.states), subject.newest)
        assert (summary.bytes or 0) > 0 if subject.case.sized else summary.bytes is None
        assert not summary.damaged


def test_a_pinned_table_answers_alike(subjects: list[Subject]) -> None:
    for subject in subjects:
        pinned = subject.table.pin()
        assert pinned.pin() is pinned
        assert pinned.kept_versions() == subject.table.kept_versions() == (min(subject.states), subject.newest)
        assert pinned.identity == subject.table.identity != ""
        assert rows_of(Table(pinned).scan().read_all()) == subject.states[subject.newest]
        assert pinned.known_from(subject.newest) == (
            None if subject.case.whole else subject.case.times[min(subject.states)]
        )
