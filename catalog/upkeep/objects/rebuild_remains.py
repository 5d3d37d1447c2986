"""Objects that rebuilds in an object store left below a store's name, and that no store there needs.

Their driver may have died, or a task may have written a file after the rebuild had failed and its folder was removed.
All of it lies in folders beside the store's own files, or is an intent. A rebuild under way looks the same, so it is
told from a dead one by age, like the files of a commit: no rebuild is published that began so long ago
(``FILES_TOO_OLD``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from statestore.catalog.log.entries import decode_entry, entry_name
from statestore.catalog.log.log_names import REPLACEMENT
from statestore.catalog.log.storage import ObjectInfo, Storage
from statestore.catalog.log.storage_objects import ObjectStorage
from statestore.catalog.log.storage_places import stores_in_turn
from statestore.catalog.log.store_spec import FOLDER

DATA = ("segments/", "staging/")


@dataclass(frozen=True)
class ObjectsBelow:
    """The objects below the name of a store at some moment, of which ``storage`` has the newest one's."""

    storage: ObjectStorage
    listed: Sequence[ObjectInfo]

    @staticmethod
    def of(storage: Storage) -> ObjectsBelow:
        """List the objects, which costs what a listing of the store alone costs if it was never rebuilt."""
        assert isinstance(storage, ObjectStorage)
        return ObjectsBelow(storage, storage.root.list(""))

    @property
    def whole(self) -> ObjectStorage:
        """The storage of everything below the store's name."""
        return self.storage.root

    @property
    def own(self) -> Iterator[ObjectInfo]:
        """The objects of the store itself, by their names in it."""
        begin = self._begin(self.storage)
        for item in self.listed:
            if item.name.startswith(begin):
                yield ObjectInfo(item.name[len(begin) :], item.bytes, item.modified_us)

    def remains(self, cutoff: int) -> list[ObjectInfo]:
        """Return what rebuilds left, but for objects younger than ``cutoff`` (epoch microseconds).

        Nothing is returned if another store has taken this one's place meanwhile. Logs and descriptions of replaced
        stores stay: they tell late writers and readers that the store was replaced.
        """
        stores = {self._begin(found): found for found, _ in stores_in_turn(self.storage.root)}
        own = self._begin(self.storage)
        if own != list(stores)[-1]:
            return []
        old = [item for item in self.listed if item.modified_us <= cutoff]
        left = [item for item in old if _is_left(item.name, own, stores.keys())]
        return left + [item for begin, found in stores.items() for item in _intents(found, begin, old)]

    def _begin(self, storage: Storage) -> str:
        """Return how the names of a store's objects begin below the store's name."""
        assert isinstance(storage, ObjectStorage)
        below = storage.location.path.removeprefix(self.storage.root.location.path).lstrip("/")
        return f"{below}/" if below else storage.folder


def _is_left(name: str, own: str, stores: Iterable[str]) -> bool:
    """Return whether an object belongs to a store that was replaced or dropped, or to one that never was there."""
    first, _, rest = name.partition("/")
    begin, name = (f"{first}/", rest) if FOLDER.fullmatch(first) else ("", name)
    if begin == own:
        return False  # vacuum itself knows which files the store needs
    return name.startswith(DATA) or (begin != "" and begin not in stores)


def _intents(store: Storage, begin: str, old: Sequence[ObjectInfo]) -> Iterator[ObjectInfo]:
    """Yield the intents of a store's log that did not replace it."""
    own = (item for item in old if item.name.startswith(begin))
    found = [(item, match) for item in own if (match := REPLACEMENT.fullmatch(item.name[len(begin) :]))]
    names = [entry_name(int(match[1])) for _, match in found]
    for (item, match), name, data in zip(found, names, store.read_many(names), strict=True):
        if data is None or decode_entry(name, data).replacement != match[2]:
            yield item
