"""Tasks of a keyed run without Spark: backends that are kept open and reused, but never when stale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import statestore
from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.connector.keyed import task as kept_backends
from statestore.connector.keyed.batch import _committed
from statestore.connector.keyed.keyed_job import KeyedBatch, KeyedJob, make_job, part_id
from statestore.connector.keyed.run import key_function, rows_by_key
from statestore.connector.keyed.task import Answer, Done, Failed, answers_of, from_json, read_emitted, to_json
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CommitUnknownError, InvalidInputError, UnsupportedError
from statestore.formats.places.locations import parse_location
from statestore.formats.values.types import make_schema

ROWS = pa.schema([("user", pa.string())])
OUTPUT = pa.schema([("user", pa.string()), ("n", pa.int64())])


def counting(backend: KeyedBackend) -> Any:
    count = backend.value_state("count", "bigint", default=0)

    def process(key: str, rows: pa.RecordBatch) -> Iterator[tuple[str, int]]:
        if key == "bad":
            raise LookupError("bad")
        count.update(count.value() + rows.num_rows)
        yield key, count.value()

    return process


class Driver:
    """One task with all key groups, batch after batch."""

    def __init__(self, root: Path) -> None:
        self.store: KeyedStore = statestore.connect(root).create_store("users", "keyed", key={"user": "string"})
        self.job: KeyedJob = make_job(
            self.store, parse_location(root / "users"), "user", ROWS, OUTPUT, key_function(counting), "incremental"
        )
        self.part: str | None = None
        self.base = 0

    def run(self, users: Sequence[str | None], keeps: bool = True) -> Answer:
        batch = KeyedBatch(self.job, "the batch", self.base, (range(128),), (self.part,), keeps)
        (found,) = answers_of(batch, [placed(0, [None], [None]), placed(0, list(range(len(users))), users)])
        return from_json(to_json(found))

    def commit(self, answer: Answer) -> None:
        assert isinstance(answer, Done)
        self.base = self.store.commit([answer.part], base=self.base)
        self.part = part_id(answer.part)

    def emitted(self, answer: Answer) -> list[tuple[str, int]]:
        assert isinstance(answer, Done)
        assert answer.emitted is not None
        batches = list(read_emitted(self.job.storage, answer.emitted))
        return [(row["user"], row["n"]) for batch in batches for row in batch.to_pylist()]


def placed(task: int | None, arrival: Sequence[int | None], users: Sequence[str | None]) -> pa.RecordBatch:
    columns = [pa.array([task] * len(users), pa.int32()), pa.array(arrival, pa.int64()), pa.array(users, pa.string())]
    return pa.RecordBatch.from_arrays(columns, names=["task", "arrival", "c0"])


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "scratch"))
    yield Driver(tmp_path / "w")
    for kept in kept_backends._kept.values():
        kept.backend.dispose()
    kept_backends._kept.clear()
    assert not list((tmp_path / "scratch").glob("*/*"))


def backend_of(answer: Answer) -> str:
    assert isinstance(answer, Done)
    return answer.part.backend


def test_a_backend_serves_batch_after_batch(driver: Driver) -> None:
    first = driver.run(["a", "b", "a"])
    driver.commit(first)
    second = driver.run(["a"])
    driver.commit(second)
    third = driver.run(["b", "c"])
    assert driver.emitted(first) == [("a", 2), ("b", 1)]
    assert driver.emitted(second) == [("a", 3)]
    assert driver.emitted(third) == [("b", 2), ("c", 1)]
    assert backend_of(first) == backend_of(second) == backend_of(third)
    assert isinstance(third, Done)
    assert third.part.reused, "incremental, upon the version that was committed"


def test_one_that_stands_at_what_was_not_committed_is_not_used(driver: Driver) -> None:
    """The commit failed, so the batch comes again: it may not count twice."""
    driver.commit(driver.run(["a"]))
    lost = driver.run(["a", "a"])
    again = driver.run(["a", "a"])
    assert driver.emitted(again) == [("a", 3)]
    assert backend_of(again) != backend_of(lost)


def test_one_that_failed_is_not_used(driver: Driver) -> None:
    driver.commit(driver.run(["a"]))
    failed = driver.run(["a", "bad"])
    assert isinstance(failed, Failed)
    assert "key 'bad' of the batch: LookupError: bad" in str(failed.error)
    assert driver.emitted(driver.run(["a"])) == [("a", 2)]


def test_one_that_was_overtaken_is_not_used(driver: Driver) -> None:
    driver.commit(driver.run(["a"]))
    kept = dict(kept_backends._kept)
    kept_backends._kept.clear()  # another process has the next task
    driver.commit(driver.run(["a"], keeps=False))
    kept_backends._kept.update(kept)
    assert driver.emitted(driver.run(["a"])) == [("a", 3)]


def test_only_so_many_are_kept_and_none_that_is_stale(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_backends, "KEPT", 2)
    groups = tuple(driver.store.task_groups(4))
    batch = KeyedBatch(driver.job, "the batch", 0, groups, (None,) * 4, True)
    parts = [next(answers_of(batch, [placed(task, [None], [None])])) for task in range(4)]
    assert [name[-1] for name in kept_backends._kept] == [groups[2], groups[3]]
    version = driver.store.commit([part.part for part in parts if isinstance(part, Done)])
    later = KeyedBatch(driver.job, "the batch", version, (range(128),), (None,), True)
    assert isinstance(next(answers_of(later, [placed(0, [None], [None])])), Done)
    assert [name[-1] for name in kept_backends._kept] == [range(128)]


def test_nothing_is_kept_where_workers_are_not(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER")
    driver.run(["a"])
    assert not kept_backends._kept


def test_several_tasks_in_one_partition(driver: Driver) -> None:
    """Should Spark merge partitions: each task has a backend of its own and just its rows."""
    groups = tuple(driver.store.task_groups(2))
    batch = KeyedBatch(driver.job, "the batch", 0, groups, (None, None), False)
    users = [f"u{number}" for number in range(20)]
    with driver.store.backend() as backend:
        task_of = {user: int(backend.key_group(user) >= groups[1].start) for user in users}
    rows = [placed(task_of[user], [number], [user]) for number, user in enumerate(users)]
    answers = list(answers_of(batch, [placed(1, [None], [None]), *rows, placed(0, [None], [None])]))
    driver.store.commit([answer.part for answer in answers if isinstance(answer, Done)])
    assert sorted(user for answer in answers for user, _ in driver.emitted(answer)) == sorted(users)
    assert [answer.task for answer in answers] == [1, 0]
    with pytest.raises(UnsupportedError, match="ROWS_MISPLACED"):
        list(answers_of(batch, [placed(0, [None], [None]), *rows]))


KEYS: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, 127, 0],
    "bigint": [-(2**63), 2**63 - 1, 0, 5],
    "string": ["", "a", "a\x00", "ü", "\U0001f600"],
    "binary": [b"", b"\x00", b"\xff"],
    "date": [date(1, 1, 1), date(2026, 11, 21)],
    "timestamp": [datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 11, 21, 1, 2, 3, 4, UTC)],
    "decimal(20,2)": [Decimal("-1.50"), Decimal("123456789012345678.99")],
    "struct<a:int,b:string>": [{"a": 1, "b": "x"}, {"a": 1, "b": None}],
    "array<int>": [[], [1], [1, None]],
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("several", [False, True])
def test_rows_of_each_key_in_order(kind: str, several: bool) -> None:
    random = np.random.default_rng(3)
    columns = make_schema({"k": kind, "number": "int"} if several else {"k": kind}, "key")
    picks = random.integers(0, len(KEYS[kind]), 60)
    keys = [pa.array([KEYS[kind][pick] for pick in picks], columns.field(0).type)]
    keys += [pa.array(picks % 2, pa.int32())] if several else []
    arrival = random.permutation(60)
    rows = pa.table({"at": pa.chunked_array([pa.array(arrival[:20]), pa.array(arrival[20:])])})
    found = [
        (repr(key), each.column("at").to_pylist()) for key, each in rows_by_key(columns, keys, rows, pa.array(arrival))
    ]
    expected: dict[str, list[int]] = {}
    for place in np.argsort(arrival).tolist():
        value = KEYS[kind][picks[place]]
        key = {"k": value, "number": int(picks[place]) % 2} if several else value
        expected.setdefault(repr(key), []).append(int(arrival[place]))
    assert found == list(expected.items())


def test_a_key_that_is_null(driver: Driver) -> None:
    batch = KeyedBatch(driver.job, "the batch", 0, (range(128),), (None,), False)
    (found,) = answers_of(batch, [placed(0, [None], [None]), placed(0, [1], ["a"]), placed(None, [2], [None])])
    assert isinstance(found, Failed)
    assert found.error.code == "NULL_KEY"


def test_errors_keep_kind_code_and_notes_on_their_way() -> None:
    error = InvalidInputError(ErrorCode.FUNCTION_FAILED, "it failed")
    error.add_note("where")
    back = from_json(to_json(Failed(3, error)))
    assert isinstance(back, Failed)
    assert (type(back.error), back.error.code, back.error.message) == (InvalidInputError, error.code, error.message)
    assert back.error.__notes__ == ["where"]


def test_files_of_a_commit_whose_outcome_is_unknown_stay(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log may name them yet. Those of a commit that is refused go."""
    answer = driver.run(["a", "b"], keeps=False)
    for error, stay in (
        (CommitUnknownError(ErrorCode.COMMIT_UNKNOWN, "no answer"), True),
        (InvalidInputError(ErrorCode.INVALID_TRANSACTION, "refused"), False),
    ):

        def commit(*given: Any, error: Exception = error, **options: Any) -> int:
            raise error

        with monkeypatch.context() as patch, pytest.raises(type(error)):
            patch.setattr(KeyedStore, "commit", commit)
            _committed(driver.store, 0, [answer], None)
        assert bool(driver.store.files().list("shared/")) == stay
