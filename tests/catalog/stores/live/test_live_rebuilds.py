"""Rebuilds of live stores, and of versioned ones: another kind or retention, what is refused, what a death leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stores.live_kinds import COLUMNS, create, live_rows, rows
from support.stores.live_places import PLACES, warehouse_in

import statestore
from statestore.catalog.stores.versioned import replay_in_tasks
from statestore.formats.errors import ConflictError, InvalidInputError, NotFoundError, UnsupportedError


@pytest.fixture(params=PLACES)
def catalog(tmp_path: Path, request: pytest.FixtureRequest) -> statestore.Catalog:
    return warehouse_in(tmp_path / "warehouse", request.param)


@pytest.fixture
def local_catalog(tmp_path: Path) -> statestore.Catalog:
    return statestore.connect(tmp_path / "warehouse")


@pytest.mark.quick("directory")
def test_unversioned_becomes_versioned_and_back(catalog: statestore.Catalog) -> None:
    with create(catalog, "key_value") as store:
        for round_ in range(3):
            store.put("a", round_)
            store.put("b", 10 + round_)
            store.commit()
        store.delete("b")
        store.commit()
        times = [row["valid_from"] for row in store.history(key="a").read_all().sort_by("valid_from").to_pylist()]
        store.put("c", 7)
    with catalog.rebuild("s", kind="versioned", history_retention="1 day") as versioned:
        assert [versioned.get("a", as_of=time).value for time in times] == [0, 1, 2]
        assert (versioned.get("b"), versioned.get("b", as_of=times[2]).value) == (None, 12)
        assert versioned.get("c").value == 7
        assert versioned.spec.history_retention == 86_400_000
    with catalog.rebuild("s", kind="key_value") as again:
        assert live_rows(again) == rows(again) == [("a", 2), ("c", 7)]
    if catalog.location.is_local:
        assert [path.name for path in catalog.root.iterdir()] == ["s"]


@pytest.mark.quick("objects")
def test_another_retention_forgets_what_is_too_old(catalog: statestore.Catalog) -> None:
    with create(catalog, "window") as store:
        for number in range(50):
            store.put("a", number, number * 60_000)
        store.commit()
    with catalog.rebuild("s", retention="10 minutes", window_size="1 minute", segment_interval="1 minute") as store:
        assert [row.value for row in store.all()] == list(range(40, 50))
        assert rows(store) == [("a", number) for number in range(40, 50)]


@pytest.mark.quick("directory")
def test_rebuild_after_expiry(catalog: statestore.Catalog) -> None:
    """The rows of the oldest kept version are the base."""
    with catalog.create_store("s", **COLUMNS, history_retention=100) as store:
        for time in range(0, 500, 50):
            store.put("a", time, timestamp=time)
            store.put("b", time, timestamp=7)
            store.commit()
        store.delete("b", timestamp=470)
        store.commit()
        store.expire()
    with catalog.rebuild("s", history_retention=1_000) as store:
        assert store.get("a").value == 450
        assert (store.get("b"), store.get("b", as_of=460).value) == (
            None,
            100,
        )  # at 7 it was put again until that was too late


@pytest.mark.parametrize("new", ["versioned", "session"])
def test_kinds_that_have_other_keys_are_refused(catalog: statestore.Catalog, new: str) -> None:
    create(catalog, "window").close()
    with pytest.raises(UnsupportedError, match="REBUILD_KIND"):
        catalog.rebuild("s", kind=new, retention=5)
    with pytest.raises(InvalidInputError, match="MISSING_OPTION"):
        catalog.rebuild("s", retention=5)
    assert catalog.stores() == ["s"]


def test_a_store_that_is_open_is_not_rebuilt(catalog: statestore.Catalog) -> None:
    with create(catalog, "key_value") as store:
        store.put("a", 1)
        with pytest.raises(ConflictError, match="STORE_LOCKED"):
            catalog.rebuild("s", kind="versioned")
        assert store.get("a") == 1


def test_a_rebuild_that_dies_leaves_the_old_store(
    local_catalog: statestore.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process dies in the replay, and between the two renames."""
    with create(local_catalog, "key_value") as store:
        store.put("a", 1)
        store.commit()
    monkeypatch.setattr(replay_in_tasks, "replay", lambda table, target: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        local_catalog.rebuild("s", kind="versioned")
    monkeypatch.undo()
    renames = iter((False, True))
    real = Path.rename

    def dying(self: Path, target: Path) -> Path:
        if next(renames):
            raise KeyboardInterrupt
        return real(self, target)

    monkeypatch.setattr(Path, "rename", dying)
    with pytest.raises(KeyboardInterrupt):
        local_catalog.rebuild("s", kind="versioned")
    monkeypatch.undo()
    with local_catalog.open_store("s") as store:
        assert store.get("a") == 1
    with pytest.raises(NotFoundError):
        local_catalog.open_store("t")
