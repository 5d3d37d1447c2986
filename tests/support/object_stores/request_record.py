"""A record of the requests to object stores: how many, of which kind, and how many one after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import obstore

KINDS = ("get", "put", "head", "list", "list_with_delimiter", "delete")


@dataclass(frozen=True)
class Request:
    """One request: its kind, the key or folder, and when it began and ended, in seconds."""

    kind: str
    key: str
    begin: float
    end: float


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
        """The length of the longest chain of requests of which each began after the one before had ended."""
        rounds, free = 0, 0.0
        for request in sorted(self.requests, key=lambda each: each.end):
            if request.begin >= free:
                rounds, free = rounds + 1, request.end
        return rounds

    def __str__(self) -> str:
        first = min((each.begin for each in self.requests), default=0.0)
        lines = [
            f"{1000 * (each.begin - first):7.0f} {1000 * (each.end - first):7.0f} {each.kind:5} {each.key}"
            for each in sorted(self.requests, key=lambda each: each.begin)
        ]
        return "\n".join([f"{len(self)} requests in {self.rounds} rounds", *lines])


@contextmanager
def recorded(latency: float = 0.0) -> Iterator[Record]:
    """Record the requests of this process in the block; each takes ``latency`` seconds longer, as over a network."""
    record, lock = Record(), threading.Lock()
    waiting = threading.Event()

    def recording(kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def request(store: Any, *arguments: Any, **options: Any) -> Any:
            begin = time.monotonic()
            if latency:
                waiting.wait(latency)
            try:
                return call(store, *arguments, **options)
            finally:
                key = str(arguments[0] if arguments else options.get("prefix"))
                part = options.get("options", {}).get("range")
                key += f" [{part[0]}, {part[1]})" if part else ""
                with lock:
                    record.requests.append(Request(kind, key, begin, time.monotonic()))

        return request

    with ExitStack() as patches:
        for kind in KINDS:
            patches.enter_context(mock.patch.object(obstore, kind, recording(kind, getattr(obstore, kind))))
        yield record
