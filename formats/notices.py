"""Notices: reasons why the rows of a read may not be those that the engine itself would show.

Files may tell that they are not the newest of their state: a store of Kafka Streams whose application was killed has
some of its rows on disk, and a table of rows looks the same with them and without. A source returns such reasons
(`statestore.formats.engine.Source.notices`), and the plan of a read passes them to `notify`. They then reach the user
beside the rows: as a `StateStoreWarning` in Python, as a line on stderr from the command line, on the explorer's page.
A read with option ``strict`` is refused instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError

STRICT = "strict"
"""The option of a read, by its lower-case name, with which a notice is an error."""
Take = Callable[[str], None]
TakeDamage = Callable[[CorruptError | NotFoundError], None]


class StateStoreWarning(UserWarning):
    """A warning that the rows of a read may not be current or complete. Its text names the state and the reason."""


def _warn(text: str) -> None:
    warnings.warn(StateStoreWarning(text), stacklevel=4)


_program: list[Take] = []
_taken_by: ContextVar[Take | None] = ContextVar("taken_by", default=None)
_damage_to: ContextVar[TakeDamage | None] = ContextVar("damage_to", default=None)


def notify(subject: str, reasons: Iterable[str], *, strict: bool = False) -> None:
    """Pass the reasons why the rows of ``subject``, a state at a location, may not be current to who shows them.

    By default each becomes a `StateStoreWarning`, which Python shows once for each place in a program and text. Raises
    NotFoundError ROWS_UNCERTAIN with ``strict``.
    """
    found = tuple(dict.fromkeys(reasons))
    if found and strict:
        raise NotFoundError(
            ErrorCode.ROWS_UNCERTAIN,
            f"{subject}: {'; '.join(found)}; option strict refuses such rows: read without it, and they are returned "
            "with a notice",
        )
    take = _taken_by.get() or (_program[-1] if _program else _warn)
    for reason in found:
        take(f"{subject}: {reason}")


@contextmanager
def notices_to(take: Take, *, all_threads: bool = False) -> Iterator[None]:
    """Pass each notice within the block to ``take``, once for each text, in place of a warning.

    By default these are the notices of this thread and of those that run in a copy of its context; with
    ``all_threads``, those of the whole process that no other block takes.
    """
    seen: set[str] = set()

    def once(text: str) -> None:
        if text not in seen:
            seen.add(text)
            take(text)

    if all_threads:
        _program.append(once)
        try:
            yield
        finally:
            _program.remove(once)
        return
    token = _taken_by.set(once)
    try:
        yield
    finally:
        _taken_by.reset(token)


def notify_repaired(subject: str, errors: Iterable[CorruptError | NotFoundError], how: str) -> None:
    """Tell that a read of ``subject`` succeeded without files that cannot be read, and ``how``.

    Users get a notice, a verification each of the errors.
    """
    take = _damage_to.get()
    if take is None:
        notify(subject, [how])
        return
    for error in errors:
        take(error)


def is_verification() -> bool:
    """Return whether this thread reads to verify files, also those parts of them that no read needs."""
    return _damage_to.get() is not None


@contextmanager
def damage_to(take: TakeDamage) -> Iterator[None]:
    """Pass each error of a file that a read within the block does without to ``take``, in place of a notice."""
    token = _damage_to.set(take)
    try:
        yield
    finally:
        _damage_to.reset(token)


def is_strict(options: Mapping[str, str]) -> bool:
    """Return whether options of a read refuse rows of which there is a notice."""
    return options.get(STRICT, "false").strip().lower() == "true"
