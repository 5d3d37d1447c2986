"""Random histories of each kind of live store against its model, while the store is committed, closed and reopened, its
hot tier lost or damaged, and its table read: every answer is the model's, and every version shows what it had then."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from models.join_window import JoinWindowModel
from models.key_value import KeyValueModel
from models.operations import (
    INTERVAL,
    RETENTION,
    Operation,
    apply,
    join_window_operations,
    key_value_operations,
    session_operations,
    window_operations,
)
from models.session import SessionModel
from models.window import WindowModel
from support.parameters import mostly_slow
from support.stores.layout_invariants import layout_violations, uniqueness_violations
from support.stores.live_places import PLACES, kept_of, warehouse_in

import statestore

EXAMPLES = int(os.environ.get("STATESTORE_EXAMPLES", "5"))
PHASES = tuple(Phase) if EXAMPLES > 10 else (Phase.explicit, Phase.reuse, Phase.generate)  # shrinking takes minutes
COLUMNS: dict[str, Any] = {"key": {"k": "binary"}, "value": {"v": "string"}}


@dataclass(frozen=True)
class Kind:
    """A kind of live store. ``visible``: the rows that a model shows now, as the table's cells in order of
    ``columns``."""

    model: Callable[[], Any]
    options: dict[str, Any]
    operations: st.SearchStrategy[list[Operation]]
    columns: tuple[str, ...]
    visible: Callable[[Any], list[tuple[Any, ...]]]


def joined(model: JoinWindowModel) -> list[tuple[Any, ...]]:
    return [(row.key, row.timestamp, row.value) for rows in model._segments.values() for row in rows.values()]


WINDOW = {"kind": "window", "retention": RETENTION, "window_size": 10, "segment_interval": INTERVAL}
WINDOWED = ("k", "window_start", "window_end", "v")
KINDS = {
    "key_value": Kind(
        lambda: KeyValueModel(bytes),
        {"kind": "key_value"},
        key_value_operations(),
        ("k", "v"),
        lambda model: [tuple(row) for row in model.all()],
    ),
    "window": Kind(
        lambda: WindowModel(bytes, RETENTION, 10, INTERVAL),
        WINDOW,
        window_operations(),
        WINDOWED,
        lambda model: [tuple(row) for row in model.all()],
    ),
    "duplicates": Kind(
        lambda: WindowModel(bytes, RETENTION, 10, INTERVAL, retain_duplicates=True),
        {**WINDOW, "retain_duplicates": True},
        window_operations(),
        WINDOWED,
        lambda model: [tuple(row) for row in model.all()],
    ),
    "time_ordered": Kind(
        lambda: WindowModel(bytes, RETENTION, 10, INTERVAL, retain_duplicates=True, time_ordered=True),
        {**WINDOW, "retain_duplicates": True, "time_ordered": True},
        window_operations(),
        WINDOWED,
        lambda model: [tuple(row) for row in model.all()],
    ),
    "session": Kind(
        lambda: SessionModel(bytes, RETENTION, INTERVAL),
        {"kind": "session", "retention": RETENTION, "segment_interval": INTERVAL},
        session_operations(),
        ("k", "session_start", "session_end", "v"),
        lambda model: [tuple(row) for row in model.fetch_range(None, None)],
    ),
    "join_window": Kind(
        lambda: JoinWindowModel(bytes, 1_000, 3, RETENTION, 3),
        {"kind": "join_window", "window_before": 1_000, "window_after": 3, "retention": RETENTION, "num_segments": 3},
        join_window_operations(),
        ("k", "event_time", "v"),
        joined,
    ),
}
DISTURBANCES = ("commit", "reopen", "lose", "damage", "abandon", "compact", "flush")


@dataclass
class Subject:
    """A store that is disturbed between operations, and the expected rows of its commits."""

    folder: Path
    kind: Kind
    model: Any
    place: str = "directory"
    store: Any = None
    shown: dict[int, list[tuple[Any, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.catalog = warehouse_in(self.folder, self.place)
        self.store = self.catalog.create_store("s", **self.kind.options, **COLUMNS, serde="kafka")
        self.kept = kept_of(self.catalog)

    def disturb(self, how: str) -> None:
        getattr(self, how)()

    def commit(self) -> None:
        self.shown[self.store.commit()] = self.kind.visible(self.model)

    def compact(self) -> None:
        self.store.compact(full=True)

    def flush(self) -> None:
        self.store.flush()

    def reopen(self) -> None:
        self.store.close()
        self.store = self.catalog.open_store("s")

    def lose(self) -> None:
        """Remove the hot tier while the store is closed."""
        self.store.close()
        shutil.rmtree(self.kept / "live", ignore_errors=True)
        self.store = self.catalog.open_store("s")

    def damage(self) -> None:
        """Change one byte of every sorted file."""
        self.store.close()
        for path in (self.kept / "live").rglob("*.sst"):
            data = bytearray(path.read_bytes())
            data[len(data) // 3] ^= 1
            path.write_bytes(data)
        self.store = self.catalog.open_store("s")

    def abandon(self) -> None:
        """End the process: its files stay as they are, its lock is released, its count of refused records is lost."""
        copy = self.kept.with_name(self.kept.name + "-copy")
        if (self.kept / "live").exists():
            shutil.copytree(self.kept, copy, copy_function=copied_if_there)
            self.store.close()
            shutil.rmtree(self.kept)
            copy.rename(self.kept)
            self.store = self.catalog.open_store("s")

    def check_table(self) -> None:
        for version, rows in self.shown.items():
            found = self.store.scan(version=version, columns=self.kind.columns).read_all().to_pylist()
            assert sorted(map(as_cells, found), key=repr) == sorted(rows, key=repr), version
        self.store.refresh()
        files, log_state = self.store._files, self.store._log_state
        assert layout_violations(files, log_state) == []
        assert [uniqueness_violations(files, log_state, version) for version in self.shown] == [[]] * len(self.shown)


def as_cells(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(round(cell.timestamp() * 1000) if hasattr(cell, "timestamp") else cell for cell in row.values())


def answer(target: Any, operation: Operation) -> Any:
    found = apply(target, operation)
    if operation[0] == "fetch" and isinstance(target, statestore.JoinWindowStore):
        return [row[3] for row in found]
    return found


def check(subject: Subject, operations: list[Operation], data: st.DataObject) -> None:
    forgotten = False  # how many records were refused is known to a handle, and to a commit
    for operation in operations:
        disturbance = data.draw(st.sampled_from([None] * 9 + list(DISTURBANCES)))
        if disturbance is not None:
            forgotten |= disturbance in ("abandon", "lose", "damage")
            if disturbance in ("reopen", "abandon", "lose", "damage") and isinstance(subject.model, WindowModel):
                subject.model.restarted()
            subject.disturb(disturbance)
        if operation[0] != "dropped_records" or not forgotten:
            assert answer(subject.store, operation) == answer(subject.model, operation), (operation, disturbance)
    subject.commit()
    subject.check_table()


@pytest.mark.quick("*-directory")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", mostly_slow(KINDS, ("window", "time_ordered")))
def test_answers_are_those_of_the_model(name: str, place: str) -> None:
    kind = KINDS[name]

    @given(operations=kind.operations, data=st.data())
    @settings(max_examples=EXAMPLES, deadline=None, phases=PHASES)
    def run(operations: list[Operation], data: st.DataObject) -> None:
        with tempfile.TemporaryDirectory() as folder:
            subject = Subject(Path(folder) / "w", kind, kind.model(), place)
            try:
                check(subject, operations, data)
            finally:
                subject.store.close()

    run()


def copied_if_there(source: str, target: str) -> None:
    """Copy a file unless RocksDB removes it: it may remove merged files at any moment."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)
