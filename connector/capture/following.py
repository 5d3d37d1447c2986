"""A capture that goes on: looks at its source again and again, waits for what it cannot reach, and can be stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from typing import Any, Literal, Self

from statestore.catalog.capture.step import newest_captured, table_of
from statestore.catalog.stores.versioned.captured_store import CapturedStore
from statestore.connector.capture.looks import CapturedVersion, Looks
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError, StateStoreError, StorageError
from statestore.formats.values.times import TICK, format_time

MOST_WAIT = 300.0
"""Seconds between two looks at a source that cannot be reached, at most."""


@dataclass(frozen=True)
class CaptureEvent:
    """What a capture did, or why it waits: ``kind`` is captured, gap, expired or waiting.

    captured: ``version`` of ``state``, with its ``time`` and ``watermark`` (epoch milliseconds), is ``commit`` of
    ``store``, in which ``rows`` were put and ``tombstones`` removed; ``behind`` versions can be read and are not
    captured yet. gap: nobody can read the versions from ``missing[0]`` to ``missing[1]`` any more, and ``version``
    bridges them. expired: what ended before ``time`` was removed. waiting: ``reason`` says what cannot be reached, and
    ``seconds`` when the next look is.
    """

    kind: Literal["captured", "gap", "expired", "waiting"]
    state: str | None = None
    store: str | None = None
    version: int | None = None
    time: int | None = None
    watermark: int | None = None
    commit: int | None = None
    rows: int = 0
    tombstones: int = 0
    bytes: int = 0
    behind: int = 0
    missing: tuple[int, int] | None = None
    reason: str = ""
    seconds: float | None = None

    def fields(self) -> dict[str, Any]:
        """Return what is known as an object: the fields that its kind has."""
        found = asdict(self)
        if self.kind == "waiting":
            return {name: found[name] for name in ("kind", "reason", "seconds")}
        counts = {"watermark", "rows", "tombstones", "bytes", "behind"}
        left_out = {"reason", "seconds", *(() if self.kind == "captured" else counts)}
        return {name: value for name, value in found.items() if name not in left_out}

    def __str__(self) -> str:
        if self.kind == "waiting":
            return f"waiting {self.seconds:.0f} s: {self.reason}"
        if self.kind == "expired":
            assert self.time is not None
            return f"{self.store}: what ended before {format_time(self.time * TICK)} was removed"
        if self.kind == "gap":
            assert self.missing is not None
            first, last = self.missing
            which = f"version {first} was" if first == last else f"versions {first} to {last} were"
            return f"{self.state}: {which} gone before the capture came; version {self.version} bridges the gap"
        assert self.time is not None
        behind = f", {self.behind} behind" if self.behind else ""
        return (
            f"{self.state}: version {self.version} of {format_time(self.time * TICK)}, {self.rows:,} rows put, "
            f"{self.tombstones:,} removed{behind}"
        )


class Following:
    """An iterator of what a capture does, which ends after `stop`. It is a context manager: leaving it stops and
    closes.

    ``every`` and ``keep``: as `capture` has them, in seconds and milliseconds. ``looked`` is called after each look
    that came to its end.
    """

    def __init__(
        self, looks: Looks, every: float, keep: int | None, looked: Callable[[Looks], None] = lambda looks: None
    ) -> None:
        self.looks = looks
        self.every = every
        self.keep = keep
        self.looked = looked
        self._stop = threading.Event()
        self._events = self._follow()

    def __iter__(self) -> Iterator[CaptureEvent]:
        return self

    def __next__(self) -> CaptureEvent:
        return next(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def stop(self) -> None:
        """End the capture after the commit that is under way. It can be called from any thread and signal handler."""
        self._stop.set()

    def close(self) -> None:
        """Stop, and close the stores."""
        self.stop()
        self._events.close()
        self.looks.close()

    def once(self) -> Iterator[CaptureEvent]:
        """Yield what one look does: a gap before the version that bridges it, and each version. Raises its errors."""
        for found in self.looks.look(self._stop.is_set):
            yield from _events_of(found)
        yield from self._expired()

    def _follow(self) -> Generator[CaptureEvent, None, None]:
        failures = 0
        try:
            while not self._stop.is_set():
                wait = self.every
                try:
                    for event in self.once():
                        failures = 0
                        yield event
                    failures = 0
                    if not self._stop.is_set():
                        self.looked(self.looks)
                except StateStoreError as error:
                    if not _may_pass(error):
                        raise
                    wait = min(self.every * 2**failures, max(MOST_WAIT, self.every))
                    failures += 1
                    yield CaptureEvent("waiting", reason=str(error), seconds=wait)
                self._stop.wait(wait)
        finally:
            self.looks.close()

    def _expired(self) -> Iterator[CaptureEvent]:
        """Remove what ended longer ago than it is kept, in steps of a hundredth of that, and tell it."""
        if self.keep is None:
            return
        for state, store in self.looks.stores.items():
            newest = newest_captured(store)
            if newest is None:
                continue
            before = newest.time // TICK - self.keep
            if before - _kept_from(store) >= max(self.keep // 100, 1):
                commit = store.expire(before=before)
                yield CaptureEvent("expired", state, store.spec.name, time=before, commit=commit)


def _kept_from(store: CapturedStore) -> int:
    """Return the moment from which on a store has its past, epoch milliseconds."""
    log_state = table_of(store).log_state()
    begins = 0 if log_state.captured is None else log_state.captured.begins
    return max(begins, 0 if log_state.horizon is None else log_state.horizon.time) // TICK


def _events_of(found: CapturedVersion) -> Iterator[CaptureEvent]:
    step = found.step
    taken = step.source
    about = CaptureEvent("captured", found.state, found.store, taken.version, taken.time // TICK)
    if taken.missing is not None:
        yield replace(about, kind="gap", missing=taken.missing)
    yield replace(
        about,
        watermark=None if taken.watermark is None else taken.watermark // TICK,
        commit=step.commit,
        rows=step.rows,
        tombstones=step.tombstones,
        bytes=step.bytes,
        behind=step.behind,
        missing=taken.missing,
    )


def _may_pass(error: StateStoreError) -> bool:
    """Return whether an error may be another one, or none, at a later look: what cannot be reached, is not there, or
    changed while it was read."""
    if isinstance(error, StorageError) or error.code in (ErrorCode.NO_ACCESS, ErrorCode.KAFKA_LOG_CHANGED):
        return True
    return isinstance(error, NotFoundError) and error.code != ErrorCode.TABLE_NOT_FOUND
