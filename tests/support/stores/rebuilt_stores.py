"""A store in an object store that two machines see, and rebuilds of it that die or leave something."""

from __future__ import annotations

from typing import Any

import pytest

import statestore
from statestore.catalog.upkeep import compaction_rules, store_objects
from statestore.catalog.upkeep.compaction_rules import Rules
from statestore.catalog.upkeep.ranges import task_runs
from support.stores.killed_requests import Killed

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
Machines = tuple[statestore.Catalog, statestore.Catalog]


def few_rows_are_worth_a_task(patch: pytest.MonkeyPatch) -> None:
    """Take `AttemptedTasks` for a session, and a store of two rows for worth several tasks."""
    patch.setattr(task_runs, "_made", [lambda session: session])
    patch.setattr(compaction_rules, "DEFAULT", Rules(task_rows=1))


def rows(catalog: statestore.Catalog) -> dict[str, int]:
    """The values of all keys of store ``s``."""
    with catalog.open_store("s", read_only=True) as store:
        table = store.scan(columns=["k", "v"]).read_all()
        return dict(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))


def names_in(catalog: statestore.Catalog) -> list[str]:
    """The names of all objects below the name of store ``s``."""
    return [item.name for item in catalog.object_storage("s").list("")]


def rebuild_and_die(catalog: statestore.Catalog, *key_groups: int, **given: Any) -> None:
    """Rebuild store ``s`` several times, each time by a process that dies before it removes the replaced files."""

    def die(*_: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_objects, "_remove", die)
        for groups in key_groups:
            with pytest.raises(Killed):
                catalog.rebuild("s", key_groups=groups, **given)
