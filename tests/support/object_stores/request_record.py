"""A record of the requests to object stores: how many, of which kind, and how many one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import obstore

KINDS = ("get", "put", "head", "list", "list_with_delimiter", "delete")


@dataclass(frozen=True)
class Request:
    """One request: its kind, the key or folder, and its round, which is the number of those that it waited for."""

    kind: str
    key: str
    round: int


@dataclass
class Record:
    """The requests since the record began or was cleared."""

    requests: list[Request] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.requests)

    def clear(self) -> None:
        self.requests.clear()

    @property
    def rounds(self) -> int:
        """The length of the longest chain of requests of which each was made when the one before had been answered."""
        rounds = [request.round for request in self.requests]
        return max(rounds) - min(rounds) + 1 if rounds else 0

    def __str__(self) -> str:
        first = min((each.round for each in self.requests), default=0)
        lines = [
            f"{each.round - first:4} {each.kind:5} {each.key}"
            for each in sorted(self.requests, key=lambda each: each.round)
        ]
        return "\n".join([f"{len(self)} requests in {self.rounds} rounds", *lines])


class _Thread(threading.local):
    """``answered``: how many requests, one after the other, a thread and what it waited for have been answered."""

    answered = 0


@contextmanager
def recorded() -> Iterator[Record]:
    """Record the requests of this process in the block.

    Rounds go by what waits for what, and not by a clock: a request of a thread waits for those before it, work of a
    pool for those before it was submitted, and who takes a result for those of the work. So they are the same however
    busy the machine is.
    """
    record, lock, thread = Record(), threading.Lock(), _Thread()
    submit, result = ThreadPoolExecutor.submit, Future.result
    ends: dict[Future[Any], list[int]] = {}

    def recording(kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def request(store: Any, *arguments: Any, **options: Any) -> Any:
            try:
                return call(store, *arguments, **options)
            finally:
                key = str(arguments[0] if arguments else options.get("prefix"))
                part = options.get("options", {}).get("range")
                key += f" [{part[0]}, {part[1]})" if part else ""
                with lock:
                    record.requests.append(Request(kind, key, thread.answered))
                thread.answered += 1

        return request

    def submitted(pool: ThreadPoolExecutor, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        begun, end = thread.answered, [0]

        def run() -> Any:
            thread.answered = begun
            try:
                return work(*given, **named)
            finally:
                end[0] = thread.answered

        future: Future[Any] = submit(pool, run)
        ends[future] = end
        return future

    def taken(future: Future[Any], timeout: float | None = None) -> Any:
        try:
            return result(future, timeout)
        finally:
            thread.answered = max(thread.answered, ends.get(future, [0])[0])

    with ExitStack() as patches:
        for kind in KINDS:
            patches.enter_context(mock.patch.object(obstore, kind, recording(kind, getattr(obstore, kind))))
        patches.enter_context(mock.patch.object(ThreadPoolExecutor, "submit", submitted))
        patches.enter_context(mock.patch.object(Future, "result", taken))
        yield record
