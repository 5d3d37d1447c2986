"""Random histories with expiry: questions within the horizon are answered as before, and others are refused.

After ``expire(before=T0)`` every state time from T0 on is exact at every version from V0 on, which is the last version
whose stream time is not after T0. Programs come from seeds: the histories that matter here (a row or tombstone is
dropped and needed later) are rare among those that hypothesis draws. ``STATESTORE_EXAMPLES`` sets the number of
programs.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.parameters import mostly_slow
from support.stores.layout_invariants import layout_violations
from support.stores.versioned_checks import CHANGE, HORIZON, INTERVAL, as_row, rows_of
from support.stores.versioned_pair import Pair, small_thresholds

import statestore
from statestore.formats.errors import NotFoundError

__all__ = ["small_thresholds"]  # a fixture: these histories need small thresholds, too

EXAMPLES = int(os.environ.get("STATESTORE_EXAMPLES", "40"))
NEVER = -1

Program = list[tuple[str, Any]]


class Generator:
    """A generator of programs for `Pair`; puts are at ``earliest`` or later."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.keys = "abc"[: self.random.randrange(1, 4)]

    def put(self, earliest: int = 0) -> tuple[str, int | None, int]:
        value = None if self.random.random() < 0.35 else self.random.randrange(9)
        return self.random.choice(self.keys), value, max(earliest, self.random.randrange(HORIZON))

    def program(self, length: int, earliest: int = 0) -> Program:
        return [self._step(earliest) for _ in range(self.random.randrange(length))]

    def time(self) -> int:
        return self.random.randrange(HORIZON)

    def _step(self, earliest: int) -> tuple[str, Any]:
        name = self.random.choices(
            ("put", "put_all", "write", "commit", "compact", "reopen"), (50, 8, 8, 22, 8, 4), k=1
        )[0]
        if name == "put":
            return name, self.put(earliest)
        if name in ("put_all", "write"):
            return name, [self.put(earliest) for _ in range(self.random.randrange(1, 6))]
        return name, self.random.random() < 0.5 if name == "compact" else None


class Expiring:
    """A pair of store and model, and the horizon (T0, V0) computed from the model alone."""

    def __init__(self, folder: Path, retention: int | None = None) -> None:
        self.pair = Pair(str(folder), retention, auto_compact=False)
        self.time = NEVER
        self.version = 0

    def run(self, program: Program) -> None:
        for name, argument in [*program, ("commit", None)]:
            self.pair.step(name, argument)

    def expire(self, before: int | None) -> None:
        model = self.pair.model
        assert before is not None or model.retention is not None
        time = before if before is not None else model.stream_time - (model.retention or 0)
        if time > self.time:
            self.time = time
            self.version = max((v for v, seen in enumerate(model.stream_times) if seen <= time), default=0)
        self.pair.store.expire(before=before)
        self.pair.follow()

    def put_late(self, put: tuple[str, int | None, int]) -> None:
        """Put as in the base class, but expect that a put older than the horizon is refused."""
        if put[2] < self.time:
            assert self.pair.store.put(put[0], put[1], timestamp=put[2]) == (False, None)
            self.pair.model.dropped += 1
        else:
            self.pair.put(put)
        self.pair.step("commit", None)

    def check(self) -> None:
        assert layout_violations(self.pair.store._files, self.pair.store._log_state) == []
        self.check_refusals()
        for version in range(self.version, self.pair.store.version + 1):
            self.check_version(version)
        self.check_points()
        self.check_changes()

    def check_refusals(self) -> None:
        store, time = self.pair.store, self.time
        if time > 0:
            refused(lambda: store.scan(as_of=time - 1), "TIME_NOT_KEPT")
            refused(lambda: store.history(start_time=time - 1), "TIME_NOT_KEPT")
        if time >= 0:
            refused(lambda: store.changes(start_time=time), "TIME_NOT_KEPT")
            refused(lambda: store.changes(start_version=self.version), "VERSION_NOT_FOUND")
        if self.version > 0:
            refused(lambda: store.scan(version=self.version - 1), "VERSION_NOT_FOUND")
            refused(lambda: store.history(version=self.version - 1), "VERSION_NOT_FOUND")

    def check_version(self, version: int) -> None:
        store, model = self.pair.store, self.pair.model
        for time in [None, *range(max(self.time, 0), HORIZON + 1)]:
            found = rows_of(store.scan(version=version, as_of=time), *INTERVAL)
            assert len(found) == len(set(found)), f"version {version}, time {time}"
            assert set(found) == model.state_at(version, time), f"version {version}, time {time}"
        found = rows_of(store.history(version=version, start_time=max(self.time, 0)), *INTERVAL, "_commit_version")
        expected = {row for row in model.history(version) if row[3] is None or row[3] > self.time}
        assert len(found) == len(set(found)) and set(found) == expected, f"history at {version}"
        assert set(rows_of(store.history(version=version), *INTERVAL, "_commit_version")) == expected

    def check_points(self) -> None:
        store, model = self.pair.store, self.pair.model
        for key in "abcd":
            assert as_row(store.get(key)) == model.get(key)
            for time in range(max(self.time, 0), HORIZON + 1):
                assert as_row(store.get(key, as_of=time)) == model.get(key, time), f"{key} as of {time}"

    def check_changes(self) -> None:
        store, model = self.pair.store, self.pair.model
        for version in range(self.version + 1, store.version + 1):
            found = rows_of(store.changes(start_version=version, end_version=version), *CHANGE)
            kept = [event for event in model.changes(version, version) if event[1] > self.time]
            assert sorted(found) == kept, f"changes of {version}"
        if self.time < HORIZON:
            found = rows_of(store.changes(start_time=self.time + 1, end_time=HORIZON), *CHANGE)
            assert sorted(found) == model.changes_by_time(self.time + 1, HORIZON)


def refused(read: Callable[[], Any], code: str) -> None:
    with pytest.raises(NotFoundError) as error:
        read()
    assert error.value.code == code


@pytest.mark.quick("2")
@pytest.mark.parametrize("seed", mostly_slow(range(EXAMPLES), range(3)))
def test_what_the_horizon_keeps_is_exact(seed: int, tmp_path: Path) -> None:
    """Two expiries with writes (at the horizon or later) and compactions between them."""
    generate = Generator(seed)
    expiring = Expiring(tmp_path)
    expiring.run(generate.program(25))
    for _ in range(2):
        expiring.expire(generate.time())
        expiring.check()
        expiring.run([*generate.program(12, earliest=expiring.time), ("compact", True)])
        expiring.check()
    expiring.pair.store.close()


@pytest.mark.quick("2", "5")
@pytest.mark.parametrize("seed", mostly_slow(range(EXAMPLES // 2), range(6)))
def test_expiry_by_retention(seed: int, tmp_path: Path) -> None:
    """Any put at all: the retention refuses those that are older than the horizon it gives."""
    generate = Generator(1_000_000 + seed)
    expiring = Expiring(tmp_path, retention=generate.random.choice((0, 3, 8)))
    expiring.run(generate.program(25))
    for _ in range(2):
        expiring.expire(None)
        expiring.run([*generate.program(12), ("compact", True)])
        expiring.check()
    expiring.pair.store.close()


@pytest.mark.parametrize(
    ("history", "horizon"),
    [
        # Compaction drops the open tombstone.
        ([(None, 5)], 10),
        # Expiry drops the tombstone from 5 to 21; taking back the value at 21 would make it the newest again.
        ([(None, 5), (1, 21)], 21),
    ],
    ids=["open tombstone", "closed tombstone"],
)
def test_a_deleted_key_stays_deleted(history: list[tuple[int | None, int]], horizon: int, tmp_path: Path) -> None:
    """A put older than the horizon is refused: the tombstone that ended it may be gone."""
    with statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "bigint"}) as store:
        for value, time in history:
            store.put("a", value, timestamp=time)
        store.commit()
        store.expire(before=horizon)
        store.compact(full=True)
        if history[-1][0] is not None:
            store.put("a", None, timestamp=horizon)
            store.commit()
        assert not store.put("a", 7, timestamp=3).accepted
        store.commit()
        assert store.get("a") is None
        assert store.scan(as_of=HORIZON).read_all().num_rows == 0
        assert store.dropped_records == 1


@pytest.mark.slow
def test_puts_older_than_the_horizon(tmp_path: Path) -> None:
    """Puts older than the horizon are refused and counted, and change nothing."""
    for seed in range(max(EXAMPLES // 4, 10)):
        generate = Generator(2_000_000 + seed)
        expiring = Expiring(tmp_path / str(seed))
        expiring.run(generate.program(25))
        expiring.expire(max(expiring.pair.model.stream_time, 0))  # the latest horizon drops the most
        expiring.run([("compact", True)])
        for _ in range(6):
            expiring.put_late(generate.put())
        expiring.check()
        expiring.pair.store.close()
