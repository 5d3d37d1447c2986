"""A captured store: the handle by which a capture writes the versions of a source, and users read single keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, NoReturn

from statestore.catalog.commits.publish_commit import Change, is_committed
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.source_versions import SourceVersion
from statestore.catalog.log.store_spec import Captured
from statestore.catalog.reads.captured import has_own_key
from statestore.catalog.reads.rows import Rows
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.stores.record_input import batches_of, record_batch
from statestore.catalog.stores.store_handle import PutAllResult, check_transaction
from statestore.catalog.stores.versioned.captured_commits import check_capture, not_writable
from statestore.catalog.stores.versioned.natural_versioned import NaturalVersionedStore
from statestore.catalog.stores.versioned.table_change import append_change
from statestore.catalog.stores.versioned.unchanged_rows import without_unchanged
from statestore.catalog.stores.versioned.versioned_store import PutResult, Record
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.places.held_tables import held_rows
from statestore.formats.state_table import Query
from statestore.formats.values.times import TICK, Time, to_us


class CapturedStore(NaturalVersionedStore):
    """A live handle on a store that keeps the versions of a source; every commit with rows is one of them.

    Several captures of the source may be open. Each version is committed once, and after the one that it changes.
    """

    @property
    def captured(self) -> Captured:
        """The state of the source that the store keeps."""
        assert self.spec.captured is not None
        return self.spec.captured

    @property
    def newest(self) -> SourceVersion | None:
        """The newest version of the source that this handle has seen here (`refresh` looks again); None: none yet."""
        known = self._log_state.captured
        return None if known is None else known.newest

    def write(
        self,
        data: Any,
        mode: str = "append",
        transaction: tuple[str, int] | None = None,
        *,
        source: SourceVersion | None = None,
        after: int | Literal["any"] | None = "any",
    ) -> int:
        """Commit the changes of one version of the source, also where there are none; return the version that has it.

        ``data`` is a table as for ``put_all``, ``transaction`` the application of the capture and the number of the
        version, which is committed once. Rows that repeat the newest ones of the store are left out. ``after`` is the
        captured version after which the rows are the changes (None: they are the whole state).

        Raises ConflictError VERSION_TAKEN, and commits nothing, if that is not the newest one here: another capture
        was first. Raises ReadOnlyError READ_ONLY for a write without ``source``.
        """
        self._check_writable()
        if source is None or mode != "append":
            raise not_writable(self.name, self.captured)
        records = (record_batch(self.spec, batch) for batch in batches_of(data))
        table = held_rows(self.spec.record_schema(), records)  # a first version may be as large as the source
        checked = check_transaction(transaction)
        version = replace(source, time=source.time // TICK * TICK)  # as coarse as the times of rows

        def change(base: LogState) -> Change | None:
            if is_committed(base, checked):
                return None
            check_capture(self.name, self.captured, base, version, after)
            self._advance(base)
            changed = without_unchanged(self._files, base, self._live.lookup, table)
            found = append_change(self.spec, self._retention, self._observed_us, changed, checked)
            stream_time = version.time if found.stream_time is None else max(version.time, found.stream_time)
            return replace(found, stream_time=stream_time, source=version)

        newest = self._write(change)
        found = None if checked is None else self._log_state.versions.find_transaction(*checked)
        return newest if found is None else found

    def put(self, key: Any, value: Any, timestamp: Time) -> PutResult:
        """Raise ReadOnlyError READ_ONLY: only the capture writes."""
        raise not_writable(self.name, self.captured)

    def put_all(self, data: Any) -> PutAllResult:
        """Raise ReadOnlyError READ_ONLY: only the capture writes."""
        raise not_writable(self.name, self.captured)

    def get(self, key: Any, as_of: Time | None = None) -> Record | None:
        """Return the newest version, or the version valid at ``as_of``; None if there is none.

        Raises InvalidInputError WRONG_KEY for a state whose rows have no key of the store.
        """
        self._check_keyed()
        self._notify(as_of)
        return super().get(key, as_of)

    def get_many(self, keys: Any, as_of: Time | None = None) -> list[Record | None]:
        """Return what `get` returns for each of these keys, in their order, all from one version of the store."""
        self._check_keyed()
        self._notify(as_of)
        return super().get_many(keys, as_of)

    def get_versions(
        self, key: Any, start: Time | None = None, end: Time | None = None, ascending: bool = False
    ) -> Iterator[Record]:
        """Return versions that were valid at some moment from ``start`` to ``end`` (both inclusive), newest first."""
        self._check_keyed()
        times = (None if start is None else to_us(start, "start")), (None if end is None else to_us(end, "end"))
        self._follow()
        self._notify_of(Query(mode="history", start_time=times[0], end_time=times[1]))
        return super().get_versions(key, start, end, ascending)

    def delete(self, key: Any, timestamp: Time) -> NoReturn:
        """Raise ReadOnlyError READ_ONLY: only the capture writes."""
        raise not_writable(self.name, self.captured)

    def _history_of(self, key: Any, query: Query) -> Rows | None:
        if not has_own_key(self.spec):
            return None
        found = super()._history_of(key, query)
        if found is not None:
            self._notify_of(query)
        return found

    def _notify(self, as_of: Time | None) -> None:
        if as_of is not None:
            self._follow()
            self._notify_of(Query(as_of=to_us(as_of, "as_of")))

    def _notify_of(self, query: Query) -> None:
        assert isinstance(self.table, VersionedTable)
        self.table.notify(query, self._log_state)

    def _check_keyed(self) -> None:
        self._check_open()
        if not has_own_key(self.spec):
            captured = self.captured
            raise InvalidInputError(
                ErrorCode.WRONG_KEY,
                f"store {self.name!r} keeps state {captured.state!r} ({captured.kind}), whose rows no key of the store "
                "tells apart; read them with scan(filter=…) or history(filter=…)",
            )
