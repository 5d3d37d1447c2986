"""Live stores in a real object store, written by processes of two machines that are killed at any moment."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.object_stores.faults import Faults, puts
from support.object_stores.proxy import proxy_before
from support.object_stores.s3_server import S3Server

import statestore
from statestore.formats.errors import ConflictError, StorageError

pytestmark = pytest.mark.slow
COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
_warehouses = itertools.count()
_started: list[subprocess.Popen[bytes]] = []

# Says what it put and what it committed, each by a line behind the call.
WRITER = """
import os, sys, statestore
uri, local, first, every = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
store = statestore.connect(uri, local=local, cache=local + "-cache").open_store("s", takeover=len(sys.argv) > 5)
os.write(1, b"open\\n")
for number in range(first, first + 1_000_000):
    store.put(f"key-{number // 1_000_000}-{number % 500}", number)
    os.write(1, b"put %d\\n" % number)
    if number % every == every - 1:
        store.commit()
        os.write(1, b"commit %d\\n" % number)
"""


class Writer:
    """A process that puts numbers from ``first`` on, and commits after each ``every``."""

    def __init__(self, uri: str, local: Path, first: int, every: int, takeover: bool = False) -> None:
        command = [sys.executable, "-c", WRITER, uri, str(local), str(first), str(every), *["takeover"] * takeover]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.said = b""
        _started.append(self.process)

    def until(self, what: bytes, count: int) -> None:
        assert self.process.stdout is not None
        while self.said.count(what) < count:
            read = os.read(self.process.stdout.fileno(), 65_536)
            assert read, self.process.stderr and self.process.stderr.read().decode()[-3000:]
            self.said += read

    def killed(self) -> tuple[int, int]:
        """Kill it; return the last number that it put, and the last one that it committed (-1: none)."""
        self.process.kill()
        out, _ = self.process.communicate()
        assert self.process.returncode == -signal.SIGKILL
        lines = [line.split() for line in (self.said + out).rpartition(b"\n")[0].splitlines()]
        last = [[int(line[1]) for line in lines if line[0] == what] for what in (b"put", b"commit")]
        return (last[0] or [-1])[-1], (last[1] or [-1])[-1]

    def refused(self) -> str:
        """Wait for its end, and return what it raised."""
        _, error = self.process.communicate(timeout=60)
        assert self.process.returncode == 1
        raised = [line for line in error.decode().splitlines() if line.startswith("statestore.formats.errors.")]
        return raised[-1]


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    while _started:
        with _started.pop() as process:
            process.kill()


@pytest.fixture
def uri(s3_server: S3Server) -> Iterator[str]:
    yield s3_server.warehouse(f"live-{next(_warehouses)}")


def machine(uri: str, local: Path) -> statestore.Catalog:
    return statestore.connect(uri, local=local, cache=f"{local}-cache")


def newest(first: int, last: int) -> dict[str, int]:
    return {f"key-{number // 1_000_000}-{number % 500}": number for number in range(first, last + 1)}


def rows(store: Any) -> dict[str, int]:
    store.refresh()
    table = store.scan(columns=["k", "v"]).read_all()
    return dict(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))


def is_prefix(found: dict[str, int], before: dict[str, int], first: int, least: int, most: int) -> bool:
    """Whether the rows are those of the puts from ``first`` up to one from ``least`` to ``most``."""
    return any(found == before | newest(first, last) for last in range(least, most + 1))


@pytest.mark.parametrize("pause", [0.0, 0.004, 0.017])
def test_a_killed_owner_loses_nothing_on_its_machine(uri: str, tmp_path: Path, pause: float) -> None:
    machine(uri, tmp_path / "a").create_store("s", "key_value", **COLUMNS).close()
    expected: dict[str, int] = {}
    first = 0
    for _ in range(3):
        writer = Writer(uri, tmp_path / "a", first, 40)
        writer.until(b"commit", 3)
        time.sleep(pause)
        put, committed = writer.killed()
        with machine(uri, tmp_path / "b").open_store("s", read_only=True) as reader:
            assert is_prefix(rows(reader), expected, first, committed, put)
        expected |= newest(first, put)
        first = put + 1
    with machine(uri, tmp_path / "a").open_store("s") as store:
        last = newest(first, first)  # a put whose line was not written yet
        found = {row.key: row.value for row in store.all()}
        assert found in (expected, expected | last)
        store.commit()
        assert rows(store) == found
    assert machine(uri, tmp_path / "a").verify("s").ok


def test_another_machine_is_refused_and_takes_over(uri: str, tmp_path: Path) -> None:
    here, there = machine(uri, tmp_path / "a"), machine(uri, tmp_path / "b")
    here.create_store("s", "key_value", **COLUMNS).close()
    writer = Writer(uri, tmp_path / "a", 0, 40)
    writer.until(b"commit", 2)
    put, committed = writer.killed()
    assert "STORE_LOCKED" in Writer(uri, tmp_path / "b", 0, 40).refused()
    with there.open_store("s", takeover=True) as store:
        found = rows(store)
        assert is_prefix(found, {}, 0, committed, put)
        assert {row.key: row.value for row in store.all()} == found
        store.put("other", 1)
        store.commit()
    with here.open_store("s") as store:
        assert rows(store) == found | {"other": 1}
        taken_back = store.take_back()
        store.commit()
        # a put whose line was not written yet may be there, too
        assert rows(store) in ({**newest(0, last), "other": 1} for last in (put, put + 1))
        assert taken_back <= 41


def test_a_living_owner_that_is_overtaken_commits_nothing_more(uri: str, tmp_path: Path) -> None:
    """Two machines take the store from each other while the other one writes."""
    machine(uri, tmp_path / "a").create_store("s", "key_value", **COLUMNS).close()
    writer = Writer(uri, tmp_path / "a", 0, 30)
    first, expected = 0, dict[str, int]()
    for turn in range(1, 6):
        writer.until(b"commit", 2)
        following = Writer(uri, tmp_path / "ab"[turn % 2], turn * 1_000_000, 30, takeover=True)
        error = writer.refused()
        assert "STORE_LOCKED" in error and "taken over" in error and "changelog" in error
        lines = writer.said.rpartition(b"\n")[0].splitlines()
        committed = max(int(line.split()[1]) for line in lines if line.startswith(b"commit"))
        following.until(b"open", 1)
        with machine(uri, tmp_path / "c").open_store("s", read_only=True) as reader:
            kept = [number for number in rows(reader).values() if number < turn * 1_000_000]
        assert max(kept) >= committed
        expected |= newest(first, max(kept))
        first, writer = turn * 1_000_000, following
    put, committed = writer.killed()
    with machine(uri, tmp_path / "c").open_store("s", takeover=True) as store:
        assert is_prefix(rows(store), expected, first, committed, put)
    assert machine(uri, tmp_path / "c").verify("s").ok


def test_two_machines_that_take_over_at_once(uri: str, tmp_path: Path) -> None:
    """At most one goes on; each commit that was said to be made is there."""
    machine(uri, tmp_path / "a").create_store("s", "key_value", **COLUMNS).close()
    both = [Writer(uri, tmp_path / name, number * 1_000_000, 20, takeover=True) for number, name in enumerate("ab")]
    deadline = time.monotonic() + 60
    while all(writer.process.poll() is None for writer in both) and time.monotonic() < deadline:
        time.sleep(0.05)
    (loser,) = [writer for writer in both if writer.process.poll() is not None]
    assert "STORE_LOCKED" in loser.refused()
    (winner,) = [writer for writer in both if writer is not loser]
    winner.until(b"commit", 2)
    put, committed = winner.killed()
    with machine(uri, tmp_path / "c").open_store("s", takeover=True) as store:
        mine = [number for number in rows(store).values() if number // 1_000_000 == both.index(winner)]
        assert committed <= max(mine) <= put
        with pytest.raises(ConflictError, match="STORE_LOCKED"):
            machine(uri, tmp_path / "a").open_store("s").put("x", 1)


def stubborn(call: Callable[[], Any]) -> Any:
    """Call until no error of the store is raised."""
    for _ in range(30):
        try:
            return call()
        except StorageError:
            continue
    return call()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("faults", [{"lose_every": 3}, {"drop_every": 3}, {"lose_every": 5, "cut_every": 4}])
def test_lost_answers_neither_lose_nor_double_a_write(
    s3_server: S3Server, tmp_path: Path, faults: dict[str, int], seed: int
) -> None:
    """Two machines take turns, by closing and by taking over, and commit until no error is raised."""
    decide, values = random.Random(seed), itertools.count()
    with proxy_before(s3_server.endpoint) as proxy:
        uri = s3_server.warehouse(f"live-{next(_warehouses)}", endpoint=proxy.endpoint)
        catalogs = [machine(uri, tmp_path / name) for name in "ab"]
        catalogs[0].create_store("s", "key_value", **COLUMNS).close()
        proxy.faults = Faults(seed=seed + 1, concerns=puts, reset=bool(seed % 2), **faults)
        for _ in range(12):
            catalog = decide.choice(catalogs)
            store = stubborn(partial(catalog.open_store, "s", takeover=True, auto_compact=False))
            for _ in range(decide.randrange(4)):
                value = next(values)
                store.put(f"k{value}", value)
                if decide.random() < 0.5:
                    stubborn(store.commit)
            stubborn(store.commit)
            if decide.random() < 0.4:
                store.close()
            else:
                store._machine.forget()
                store._release()
        proxy.faults = Faults()
        count = next(values)
        with catalogs[0].open_store("s", takeover=True) as store:
            assert rows(store) == {f"k{value}": value for value in range(count)}
            assert int(store._log_state.versions.rows.sum()) == count
        assert catalogs[1].verify("s").ok
