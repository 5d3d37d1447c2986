"""A local storage that dies at the n-th step of its calls, and leaves the files that a killed process would leave."""

from __future__ import annotations

import builtins
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from statestore.catalog.log.storage import TEMPORARY, Data, Guard, LocalStorage, ObjectInfo, Written
from statestore.formats.changelogs.changelog_writer import ChangelogWriter


class Killed(BaseException):
    """A death that is not an Exception: the project may not catch it, as nothing catches a SIGKILL."""


@dataclass
class Plan:
    """A count of steps; the step numbered ``at`` (from 1) is the last, 0 for none."""

    at: int = 0
    done: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, compare=False)  # a commit may use two threads

    def step(self, leave: Callable[[], None] | None = None) -> None:
        """A point to die at, after ``leave`` has left something half done."""
        with self._lock:
            self.done += 1
            last = self.done == self.at
        if last:
            if leave is not None:
                leave()
            raise Killed(self.at)


@dataclass(frozen=True)
class KillingStorage(LocalStorage):
    """Each call may die before it and after it, a write also in the middle of each file."""

    plan: Plan = field(default_factory=Plan)

    def create(self, name: str, data: Data, guard: Guard | None = None) -> None:
        folder, _, _ = name.rpartition("/")
        temporary = f"{folder}/{TEMPORARY}{uuid.uuid4().hex}".lstrip("/")
        self.plan.step()
        self.plan.step(lambda: self._write_half(temporary, data))
        super().create(name, data, guard)
        self.plan.step()

    def create_streamed(self, name: str, write: Callable[[int], Written]) -> Written:
        self.plan.step(lambda: self._write_half(name, b"half a file"))
        written = super().create_streamed(name, write)
        self.plan.step()
        return written

    def create_many(self, files: Mapping[str, Data]) -> None:
        for name, data in files.items():
            self.plan.step(lambda name=name, data=data: self._write_half(name, data))  # type: ignore[misc]
            super().create_many({name: data})
            self.plan.step()

    def read(self, name: str) -> bytes:
        self.plan.step()
        return super().read(name)

    def map(self, name: str) -> pa.Buffer:
        self.plan.step()
        return super().map(name)

    def exists(self, name: str) -> bool:
        self.plan.step()
        return super().exists(name)

    def list(self, prefix: str, after: str = "") -> builtins.list[ObjectInfo]:
        self.plan.step()
        return super().list(prefix, after)

    def delete(self, name: str) -> None:
        self.plan.step()
        super().delete(name)
        self.plan.step()

    def _write_half(self, name: str, data: Data) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        half = bytes(memoryview(data))
        path.write_bytes(half[: len(half) // 2])


@contextmanager
def killing_changelog(plan: Plan) -> Iterator[None]:
    """Make the calls of the changelog die as well, which is not written through the storage."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("append", "sync", "discard"):
            patch.setattr(ChangelogWriter, name, _stepping(getattr(ChangelogWriter, name), plan))
        yield


def _stepping(call: Callable[..., object], plan: Plan) -> Callable[..., object]:
    def stepping(*arguments: object) -> object:
        plan.step()
        result = call(*arguments)
        plan.step()
        return result

    return stepping
