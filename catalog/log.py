"""The commit log: one JSON file per version, created once, never rewritten (docs/log-format.md)."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

import xxhash

from statestore.catalog.storage import Storage, StorageExistsError
from statestore.formats.errors import ConflictError, CorruptError, StateStoreError
from statestore.formats.segment_meta import (
    ClosureSlice,
    SegmentMeta,
    closure_slice_from_json,
    segment_meta_from_json,
    to_json,
)

Operation = Literal["create", "write", "overwrite", "compact", "expire"]
FORMAT_VERSION = 1
DATA_FILE = re.compile(r"segments/[0-9A-Za-z.-]+")


@dataclass(frozen=True)
class Horizon:
    """After an expiry: the earliest state time (epoch microseconds) and the earliest version that can be read."""

    time: int
    version: int


@dataclass(frozen=True)
class CommitEntry:
    """What one commit did. Times are epoch microseconds; ``dropped`` counts late records refused since the last."""

    version: int
    timestamp: int
    operation: Operation
    writer: str
    transaction: tuple[str, int] | None
    stream_time: int | None
    added: tuple[SegmentMeta, ...]
    removed: tuple[str, ...]
    closures: tuple[ClosureSlice, ...]
    rows: int
    tombstones: int
    closed: int
    bytes: int
    dropped: int
    horizon: Horizon | None
    changelogs: tuple[tuple[str, int], ...]


def entry_name(version: int) -> str:
    return f"log/{version:020d}.json"


def write_entry(storage: Storage, entry: CommitEntry) -> None:
    """Make the commit exist; ConflictError VERSION_TAKEN if another one has its version."""
    try:
        storage.create(entry_name(entry.version), encode_entry(entry))
    except StorageExistsError:
        raise ConflictError(
            "VERSION_TAKEN", f"version {entry.version} was committed by another writer; read again and retry"
        ) from None


def read_entry(storage: Storage, version: int) -> CommitEntry:
    """NotFoundError FILE_NOT_FOUND if there is no such version, CorruptError LOG_CORRUPT if it is damaged."""
    name = entry_name(version)
    return decode_entry(name, storage.read(name))


def encode_entry(entry: CommitEntry) -> bytes:
    commit = {"format": FORMAT_VERSION, **{name: getattr(entry, name) for name in entry.__dataclass_fields__}}
    commit["added"] = [to_json(meta) for meta in entry.added]
    commit["closures"] = [to_json(piece) for piece in entry.closures]
    commit["horizon"] = None if entry.horizon is None else asdict(entry.horizon)
    return json.dumps({"checksum": _checksum(commit), "commit": commit}, indent=1).encode()


def decode_entry(name: str, data: bytes) -> CommitEntry:
    """Raises CorruptError LOG_CORRUPT naming the file and what is wrong."""
    try:
        document = json.loads(data)
        commit: dict[str, Any] = document["commit"]
        found, expected = _checksum(commit), document["checksum"]
        if found != expected:
            raise _corrupt(name, f"checksum {found} where the file says {expected}")
        if commit["format"] != FORMAT_VERSION:
            raise _corrupt(name, f"log format {commit['format']!r}, this release reads {FORMAT_VERSION}")
        entry = _entry(commit)
    except StateStoreError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _corrupt(name, f"not a log entry ({type(error).__name__}: {error})") from error
    if entry_name(entry.version) != name:
        raise _corrupt(name, f"holds version {entry.version}")
    return entry


def _entry(commit: dict[str, Any]) -> CommitEntry:
    fields = {key: value for key, value in commit.items() if key != "format"}
    fields["added"] = tuple(segment_meta_from_json(meta) for meta in commit["added"])
    fields["closures"] = tuple(closure_slice_from_json(piece) for piece in commit["closures"])
    fields["removed"] = tuple(str(segment) for segment in commit["removed"])
    fields["horizon"] = None if commit["horizon"] is None else Horizon(**commit["horizon"])
    fields["changelogs"] = tuple((str(file), int(end)) for file, end in commit["changelogs"])
    transaction = commit["transaction"]
    fields["transaction"] = None if transaction is None else (str(transaction[0]), int(transaction[1]))
    entry = CommitEntry(**fields)
    check_file_names(entry.added, entry.closures)
    return entry


def check_file_names(added: tuple[SegmentMeta, ...], closures: tuple[ClosureSlice, ...]) -> None:
    """ValueError unless every file lies in the store's own segments folder."""
    refs = [ref for meta in added for ref in (meta.file, meta.index)] + [piece.file for piece in closures]
    for ref in refs:
        if ref is not None and not DATA_FILE.fullmatch(ref.name):
            raise ValueError(f"file name {ref.name!r}")


def _checksum(commit: dict[str, Any]) -> str:
    canonical = json.dumps(commit, sort_keys=True, separators=(",", ":"))
    return xxhash.xxh3_64_hexdigest(canonical.encode())


def _corrupt(name: str, found: str) -> CorruptError:
    return CorruptError(
        "LOG_CORRUPT",
        f"{name}: {found}. The file was changed or damaged after it was written; restore it from a copy",
    )
