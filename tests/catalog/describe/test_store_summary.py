"""The summary of a store that others compact and vacuum while it is made."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pyarrow as pa

import statestore
from statestore.catalog.describe.store_summary import summarize
from statestore.catalog.log.storage import LocalStorage, ObjectInfo


class Compacted(LocalStorage):
    """A store that is compacted and vacuumed just before its files are listed for the first time."""

    done: ClassVar[set[str]] = set()

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        if not prefix and not self.done:
            self.done.add("compacted")
            with statestore.connect(self.root.parent).open_store(self.root.name) as store:
                store.compact(full=True)
                store.vacuum(older_than=0)
        return super().list(prefix, after)


def test_files_that_a_compaction_replaced_meanwhile_are_no_damage(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", key={"k": "string"}, value={"v": "bigint"}) as store:
        for number in range(4):
            store.put_all(pa.table({"k": ["a", "b"], "v": [number, number], "timestamp": [number, number]}))
            store.commit()
    found = summarize(Compacted(tmp_path / "s"), store.spec)
    assert Compacted.done
    assert (found.keys, found.version) == (2, 4)
    assert not [problem for problem in found.problems if "damaged" in problem]
