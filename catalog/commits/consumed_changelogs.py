"""Offsets up to which commits have taken changelogs in, by which no acknowledged write is applied twice."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from statestore.catalog.commits.changelog_ownership import FOLDER
from statestore.catalog.log import log_state as log_states
from statestore.catalog.log.entries import read_entry
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage, own_folder
from statestore.formats.changelogs.changelog import made_at
from statestore.formats.errors import StateStoreError


def consumed_ends(storage: Storage, log_state: LogState, names: Iterable[str]) -> dict[str, int]:
    """Return the offset up to which each changelog is committed, for those that a commit up to ``log_state`` names.

    The log state keeps only the newest names. Where it may have forgotten a name, the log entries are read, newest
    first, back to the version at which the file was created. Raises NotFoundError or CorruptError for an entry that
    cannot be read.
    """
    named = log_state.changelogs
    asked = set(names)
    ends = {name: named[name] for name in asked & named.keys()}
    if len(named) < log_states.KEPT_CHANGELOGS:  # no name was forgotten yet
        return ends
    root = own_folder(storage)
    missing = {name: _made_at(root, name, log_state.version) for name in asked - ends.keys()}
    version = log_state.version
    while missing and version > min(missing.values()):
        for name, end in read_entry(storage, version).changelogs:
            if missing.pop(name, None) is not None:
                ends[name] = end
        version -= 1
    return ends


def _made_at(root: Path | None, name: str, newest: int) -> int:
    """Return the store's version at the creation of the changelog; -1 if the file does not record it."""
    if root is None:
        return -1
    try:
        version = made_at(root / FOLDER / name)
    except (StateStoreError, FileNotFoundError):
        return -1
    return version if version <= newest else -1
