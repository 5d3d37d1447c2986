"""The claim of a place in an object store: an object ``edit.unfinished``, which says whose edit makes a target there.

It is put before anything else, where there is nothing, and removed once the target is whole. Whoever finds the claim of
another one edits nothing into the place. Nobody but the owner removes what lies there: no other machine can tell a dead
process from a slow one, nor an object of the edit from one of a query that somebody has started there. So the error for
a claim says all that helps to decide. The owner publishes nothing, and removes nothing, once the claim is not its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from statestore.catalog.edits.target_errors import target_exists
from statestore.catalog.log.storage import ObjectInfo, StorageExistsError
from statestore.catalog.log.storage_objects import ObjectStorage
from statestore.formats.edits import UNFINISHED_FILE
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError, UnsupportedError
from statestore.formats.places.locations import AZURE, GCS, OBJECT_SCHEMES, S3, Location, bucket_of
from statestore.formats.places.object_clients import names_at
from statestore.formats.values.times import format_time

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PLAIN = re.compile(r"[A-Za-z0-9_/.=-]+")
"""Paths that no shell reads as anything else."""


@dataclass(frozen=True)
class Claim:
    """A claim of this process, and its content."""

    location: Location
    content: bytes

    @property
    def _storage(self) -> ObjectStorage:
        return ObjectStorage(self.location)

    def is_held(self) -> bool:
        """Return whether the claim is still there. Raises StorageError REQUEST_FAILED."""
        return self._storage.read_many([UNFINISHED_FILE]) == [self.content]

    def check(self) -> None:
        """Raise InvalidInputError TARGET_EXISTS unless the claim is still there."""
        if not self.is_held():
            raise InvalidInputError(
                ErrorCode.TARGET_EXISTS,
                f"{self.location} was not made: {UNFINISHED_FILE}, by which this edit has claimed the place, was "
                "removed or replaced meanwhile. Objects of this edit may be left there; remove those below "
                f"{self.location}/ that no other edit makes, and name another target",
            )


def claimed(location: Location) -> Claim:
    """Take a place, where there is nothing.

    Raises InvalidInputError TARGET_EXISTS, UnsupportedError NO_CREATE_ONLY_PUT.
    """
    refuse_objects(location)
    storage = ObjectStorage(location)
    about = {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "time": time.time_ns() // 1000,
        "life": _life(os.getpid()),
        "token": secrets.token_hex(16),
    }
    claim = Claim(location, json.dumps(about).encode())
    try:
        storage.create(UNFINISHED_FILE, claim.content)
    except StorageExistsError:
        _refuse_claimed(location)
    if storage.tries_to_create(UNFINISHED_FILE, claim.content):
        storage.delete(UNFINISHED_FILE)
        raise UnsupportedError(
            ErrorCode.NO_CREATE_ONLY_PUT,
            f"{location}: the object store overwrites an object although it was told to create one; write the "
            "target to a local directory, or to a store with conditional puts",
        )
    if names_at(location) != [UNFINISHED_FILE]:  # of a writer who looked before the claim was there
        storage.delete(UNFINISHED_FILE)
        raise target_exists(str(location))
    return claim


def refuse_objects(location: Location) -> None:
    """Raise InvalidInputError TARGET_EXISTS where there is an object, or a folder with some, at a location."""
    names = names_at(location)
    if UNFINISHED_FILE in names:
        _refuse_claimed(location)
    if names or (location.path and ObjectStorage(location.parent).look(location.name) is not None):
        raise target_exists(str(location))


def _refuse_claimed(location: Location) -> NoReturn:
    """Raise for a place where another edit has begun."""
    storage, who, ended = ObjectStorage(location), "", False
    with contextlib.suppress(StateStoreError, ValueError, KeyError, TypeError):
        about = json.loads(storage.read(UNFINISHED_FILE))
        who = f" by process {int(about['process'])} on {str(about['host'])[:80]!r} at {format_time(int(about['time']))}"
        ended = _has_ended(about)
    there = ""
    with contextlib.suppress(StateStoreError):
        there = _told([info for info in storage.list("") if info.name != UNFINISHED_FILE])
    what = "That process has ended: r" if ended else "Wait for that edit, or if it was killed, r"
    raise InvalidInputError(
        ErrorCode.TARGET_EXISTS,
        f"{location}: an edit to this target was begun{who}, and has not ended: {UNFINISHED_FILE} is there{there}. "
        f"{what}emove all objects below {location}/{_command(location)}, or name another target",
    )


def _told(objects: list[ObjectInfo]) -> str:
    """Return what is there besides the claim."""
    if not objects:
        return " and nothing else"
    size, last = sum(each.bytes for each in objects), max(each.modified_us for each in objects)
    number = f"{len(objects)} other object{'s' if len(objects) > 1 else ''} of {size} bytes"
    return f", and {number}, the last one put at {format_time(last)}, which may not be all"


def _command(location: Location) -> str:
    """Return the command by which users remove all objects below a location, as a remark."""
    kind, bucket = OBJECT_SCHEMES.get(location.scheme), bucket_of(location)
    if not location.path or location.path != "".join(
        each for each in location.path if each.isalnum() or each in "/-_.="
    ):
        return ""
    commands = {
        S3: f"aws s3 rm --recursive s3://{bucket}/{location.path}/",
        GCS: f"gcloud storage rm --recursive gs://{bucket}/{location.path}/",
        AZURE: f"az storage blob delete-batch --source {bucket} --pattern '{location.path}/*'",
    }
    return f" ({commands[kind]})" if kind in commands else ""


# Processes of this machine


def _life(process: int) -> str | None:
    """Return what no other process on any machine has: boot of the machine, space of process numbers, number and start.

    None where the system does not tell.
    """
    try:
        space, boot = os.readlink("/proc/self/ns/pid"), _BOOT.read_text().strip()  # noqa: PTH115
        started = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
    return f"{boot} {space} {process} {started}"


def _has_ended(about: dict[str, Any]) -> bool:
    """Return whether a claim is of a process of this machine that has ended for certain."""
    mine, life, process = _life(os.getpid()), about.get("life"), int(about["process"])
    if mine is None or not isinstance(life, str) or life.split()[:2] != mine.split()[:2]:
        return False
    return life.split()[2:3] == [str(process)] and _life(process) != life
