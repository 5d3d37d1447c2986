"""Every minor release from 1.11 to 2.3: both backends, every form of a snapshot, with and without compression.

The data is that of the job ``tests/engines/flink/releases``, whose states after 120 events are computed here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.archives import unpacked
from support.paths import DATA

import statestore

EVENTS = range(120)
UIDS = "src,times,baskets,win,tens,bro,out,out2"
RELEASES: tuple[str, ...] = (
    "1.11.6",
    "1.12.7",
    "1.13.6",
    "1.14.6",
    "1.15.4",
    "1.16.3",
    "1.17.2",
    "1.18.1",
    "1.19.3",
    "1.20.3",
)
RELEASES += ("2.0.1", "2.1.1", "2.2.0", "2.3.0")
Rows = list[dict[str, Any]]

OF_KEY: dict[str, list[int]] = defaultdict(list)
for event in EVENTS:
    OF_KEY[f"user-{event % 7}"].append(event)


def basket(key: str, events: list[int]) -> dict[str, Any]:
    return {"owner": key, "items": len(events), "total": sum(events[2:]), "share": len(events) / 4}


def values(of: Callable[[list[int]], Any]) -> dict[Any, Any]:
    return {key: of(events) for key, events in OF_KEY.items()}


TRUTH: dict[str, Any] = {
    "baskets.count": values(len),
    "baskets.items": {(key, at): f"i{event}" for key, events in OF_KEY.items() for at, event in enumerate(events)},
    "baskets.by-day": {(key, f"d{event % 3}"): event for key, events in OF_KEY.items() for event in events},
    "baskets.top": values(max),
    "baskets.grade": values(lambda events: ("LOW", "MID", "HIGH")[events[-1] % 3]),
    "baskets.fading": values(lambda events: events[-1]),
    "baskets.pair": values(lambda events: {"f0": events[-1], "f1": f"p{events[-1]}" if events[-1] % 4 else ""}),
    "baskets.basket": {key: basket(key, events) for key, events in OF_KEY.items()},
    "baskets.processing_user-timers": {(key, 4_102_444_800_000 + event) for key, of in OF_KEY.items() for event in of},
    "win.window-contents": {(key, 100_000): sum(range(100 + key, 120, 5)) for key in range(5)},
    "win.event_window-timers": {(key, 149_999) for key in range(5)},
    "bro.rules": {f"r{rest}": max(event for event in EVENTS[::10] if event % 3 == rest) for rest in range(3)},
    "src.pos": [120],
}


# Flink 1.11 sends no watermarks by itself, so all windows were still open.
WINDOWS_OF_1_11 = {
    "win.window-contents": {
        (key, start * 1000): sum(event for event in EVENTS if event % 5 == key and start <= event < start + 50)
        for key in range(5)
        for start in (0, 50, 100)
    },
    "win.event_window-timers": {(key, end * 1000 - 1) for key in range(5) for end in (50, 100, 150)},
}


def truth_of(release: str) -> dict[str, Any]:
    return TRUTH | WINDOWS_OF_1_11 if release.startswith("1.11") else TRUTH


def shown(name: str, rows: Rows) -> Any:
    """The rows of a state in the form of the truth."""
    if name == "src.pos":
        return [row["value"] for row in rows]
    if name.endswith("-timers"):
        return {(row["key"], row["timestamp_ms"]) for row in rows}
    if name == "bro.rules":
        return {row["map_key"]: row["map_value"] for row in rows}
    if name == "baskets.by-day":
        return {(row["key"], row["map_key"]): row["map_value"] for row in rows}
    if name == "baskets.items":
        return {(row["key"], row["position"]): row["value"] for row in rows}
    if name == "win.window-contents":
        return {(row["key"], int(row["namespace"]["start"].timestamp() * 1000)): row["value"] for row in rows}
    return {row["key"]: row["value"] for row in rows}


def releases() -> Path:
    return unpacked(DATA / "flink" / "releases.tar.xz")


def snapshots(release: str) -> list[Path]:
    return sorted(found.parent for found in (releases() / release).rglob("_metadata"))


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_has_each_form_of_a_snapshot(release: str) -> None:
    found = [path.relative_to(releases() / release).parts for path in snapshots(release)]
    runs = {"heap", "heap-compressed", "rocksdb-full", "rocksdb-full-compressed", "rocksdb-incremental"}
    before_1_13 = release.startswith(("1.11", "1.12"))
    assert {run for run, *_ in found} == runs | ({"memory"} if before_1_13 else set())
    savepoints = sum(name.startswith("savepoint-") for _, name, *_ in found)
    assert savepoints == (5 if before_1_13 else 4 if release < "1.15" else 6)
    assert len(found) - savepoints == (6 if before_1_13 else 5)


@pytest.mark.parametrize("release", RELEASES)
def test_the_states_of_a_release(release: str) -> None:
    """Of each snapshot one state is read, another one of the next; the slow twin reads all."""
    truth, names = truth_of(release), sorted(TRUTH)
    for number, path in enumerate(snapshots(release)):
        found = statestore.inspect(path, uids=UIDS)
        assert set(names) <= set(found.tables()), path
        name = names[(number + RELEASES.index(release)) % len(names)]
        assert shown(name, found.table(name).scan().read_all().to_pylist()) == truth[name], (path, name)


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_all_states_of_a_release(release: str) -> None:
    for path in snapshots(release):
        found = statestore.inspect(path, uids=UIDS)
        for name, truth in truth_of(release).items():
            table = found.table(name)
            assert shown(name, table.scan().read_all().to_pylist()) == truth, (path, name)
        assert found.table("baskets.count").get("user-3") is not None
        windows = sum(key == 3 for key, _ in truth_of(release)["win.window-contents"])
        assert found.table("win.window-contents").scan(filter=("key", "=", 3)).read_all().num_rows == windows
