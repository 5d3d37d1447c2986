"""The receipt of an edit, ``edit.json`` in its target: what was edited, by whom, and what became of it.

An erasure must not survive in its own receipt. So rows, and the statements of an edit that removes rows, are kept as
keyed digests (HMAC-SHA-256), whose key is not in the file: without it nobody finds by trial which value was erased. The
key is in the `Receipt` that the edit returns, and whoever keeps it can prove later what the digests stand for. Where
the file has the rows themselves (``keep_rows``), it has the key, too.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.edits.row_texts import json_lines, large_text
from statestore.catalog.reads.shown import Facts, ShowsItself
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, StateStoreError
from statestore.formats.places.folder import Folder
from statestore.formats.values.times import format_time
from statestore.formats.values.without_pandas import arrow_numbers

RECEIPT_FILE = "edit.json"
MARKER = "statestore_receipt"
FORMAT = 1
KEYED = "hmac-sha256:"
"""How keyed digests begin."""
ROWS_AT_ONCE = 1 << 13
"""Rows of which the texts are in memory."""
MOST_WRITTEN = 3
"""Written files that a receipt shows by name."""


@dataclass(frozen=True)
class EditedState:
    """The numbers and digests of rows of one state. ``follows``: no statement names it, its rows follow from others.

    ``before`` and ``after`` are digests of the rows that were removed and added. ``rows_before`` and ``rows_after`` are
    these rows in terms of JSON where they were kept. ``changed`` rows have a row key that was there before, and are
    counted neither as removed nor as added.
    """

    name: str
    removed: int
    added: int
    changed: int
    before: str
    after: str
    follows: bool = False
    rows_before: tuple[Mapping[str, Any], ...] | None = None
    rows_after: tuple[Mapping[str, Any], ...] | None = None

    def __str__(self) -> str:
        return f"{self.removed} removed, {self.added} added, {self.changed} changed"


@dataclass(frozen=True)
class WrittenFile:
    """A file that the edit wrote, by its path below the target."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class CopiedFiles:
    """The files that the target has as the source has them. ``linked``: how many are hard links to those of the source.

    ``sha256`` is a digest of a line for each, in the order of their paths: path, size and SHA-256 of the content,
    between tabs; no SHA-256 for a linked file, and for one whose bytes this process has not seen: ``shared`` files have
    the blocks of those of the source, or were copied by the server of an object store.
    """

    files: int = 0
    bytes: int = 0
    linked: int = 0
    shared: int = 0
    sha256: str = ""


@dataclass(frozen=True)
class Copied:
    """One file that a target has as the source has it; no ``sha256``: its bytes were not seen."""

    path: str
    bytes: int
    sha256: str = ""
    linked: bool = False


@dataclass(frozen=True, repr=False)
class Receipt(ShowsItself):
    """The record of an edit that was made. ``time`` is in epoch microseconds, ``product`` the version of statestore.

    ``statements`` are texts, or digests that begin with "hmac-sha256:". ``source_files`` and ``target_files`` are
    SHA-256 digests of the files of both, `files_digest`. ``key`` is that of the digests, in hexadecimal digits; None
    where the receipt was read from a file that does not have it.
    """

    source: str
    source_identity: str
    version: int
    source_files: str
    target: str
    target_version: int
    target_files: str
    statements: tuple[str, ...]
    options: Mapping[str, Any]
    states: tuple[EditedState, ...]
    written: tuple[WrittenFile, ...]
    copied: CopiedFiles
    notes: tuple[str, ...]
    user: str
    host: str
    time: int
    product: str
    key: str | None = None

    @property
    def removes_rows(self) -> bool:
        """Whether rows of the source are not in the target."""
        return any(state.removed or state.changed for state in self.states)

    def proves(self, text: str) -> bool:
        """Return whether ``text`` is a statement of the edit, kept as text or as a digest.

        A digest needs the ``key``, which the edit returned.
        """
        digests = [] if self.key is None else [keyed_digest(self.key, text)]
        return text in self.statements or any(each in self.statements for each in digests)

    def as_json(self) -> dict[str, Any]:
        """Return the receipt in terms of JSON, with the time as ISO-8601; without ``key`` unless it has rows."""
        found = asdict(self) | {"time": format_time(self.time)}
        if not any(state.rows_before is not None for state in self.states):
            del found["key"]
        for state in found["states"]:
            if state["rows_before"] is None:
                del state["rows_before"], state["rows_after"]
        return found

    def lines(self) -> list[str]:
        """Return the receipt as sentences, for who looks at the target."""
        title, facts = self._about()
        return [title, *(f"{name}: {what}" for name, what in facts)]

    def _about(self) -> tuple[str, Facts]:
        facts = [("edited", f"{format_time(self.time)} by {self.user} at {self.host}, with statestore {self.product}")]
        facts += [("statement", each) for each in self.statements]
        facts += [(state.name, f"{state}{', follows' if state.follows else ''}") for state in self.states]
        names = ", ".join(each.path for each in self.written[:MOST_WRITTEN])
        left = len(self.written) - MOST_WRITTEN
        size = sum(each.bytes for each in self.written)
        facts.append(("written", f"{size} bytes in {names or 'no file'}{f' and {left} more' if left > 0 else ''}"))
        same = f", {self.copied.linked} of them as hard links" if self.copied.linked else ""
        facts.append(("as they were", f"{self.copied.bytes} bytes in {self.copied.files} files{same}"))
        facts += [("note", each) for each in self.notes]
        return f"made from {self.source}, version {self.version}, as version {self.target_version}", facts


def keyed_digest(key: str, text: str) -> str:
    """Return the digest of a text under a key of hexadecimal digits."""
    return f"{KEYED}{hmac.new(bytes.fromhex(key), text.encode(errors='surrogatepass'), 'sha256').hexdigest()}"


def rows_digest(key: str, rows: pa.Table) -> str:
    """Return the digest of rows in terms of JSON, one a line, in their order."""
    hasher = hmac.new(bytes.fromhex(key), digestmod="sha256")
    for number, batch in enumerate(rows.to_batches(max_chunksize=ROWS_AT_ONCE)):
        if batch.num_rows:
            lines = json_lines(batch)
            whole = pa.ListArray.from_arrays(arrow_numbers(np.array([0, len(lines)], np.int32)), lines)
            hasher.update(b"\n" if number else b"")
            hasher.update(pc.binary_join(whole, large_text("\n"))[0].as_buffer())
    return f"{KEYED}{hasher.hexdigest()}"


def files_digest(files: Mapping[str, int], contents: Mapping[str, str] | None = None) -> str:
    """Return the SHA-256 of a line for each file, in the order of their paths: path and size, between tabs, and the
    SHA-256 of its content where ``contents`` has it.

    Names and sizes say whether it is the same source without a digest of what an edit has erased.
    """
    known = contents or {}
    lines = ("\t".join([path, str(size), *([known[path]] if path in known else [])]) for path, size in files.items())
    return hashlib.sha256("\n".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()


# The file


def receipt_bytes(receipt: Receipt) -> bytes:
    """Return the content of ``edit.json``."""
    body: dict[str, Any] = {MARKER: FORMAT, **receipt.as_json()}
    return json.dumps({**body, "sha256": _checksum(body)}, indent=1).encode() + b"\n"


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_receipt(folder: Folder) -> Receipt | None:
    """Return the receipt in a folder; None where there is none.

    Raises CorruptError FILE_DAMAGED for a file that is not as an edit wrote it, and the errors of `Folder.read_small`.
    """
    if RECEIPT_FILE not in folder.files():
        return None
    content = folder.read_once(RECEIPT_FILE)
    try:
        return _parsed(content)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CorruptError(
            ErrorCode.FILE_DAMAGED,
            f"{folder.path}/{RECEIPT_FILE}: no receipt as an edit writes it ({_reason(error)}); what it says is "
            "not to be trusted. Restore the file from a copy, or remove it",
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, StateStoreError):
        return error.message
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def _parsed(content: bytes) -> Receipt:
    from statestore.formats.values.times import parse_instant

    body = json.loads(content)
    if not isinstance(body, dict) or MARKER not in body:
        raise ValueError(f"it has no {MARKER!r}")
    if body[MARKER] != FORMAT:
        raise ValueError(f"{MARKER} is {body[MARKER]!r}, expected {FORMAT}")
    if body.pop("sha256", None) != _checksum(body):
        raise ValueError("its content does not go with its checksum")
    states = tuple(_state(each) for each in _list(body, "states"))
    written = tuple(
        WrittenFile(_text(each, "path"), _count(each, "bytes"), _text(each, "sha256"))
        for each in map(_object, _list(body, "written"))
    )
    copied = _object(body["copied"])
    return Receipt(
        source=_text(body, "source"),
        source_identity=_text(body, "source_identity"),
        version=_integer(body, "version"),
        source_files=_text(body, "source_files"),
        target=_text(body, "target"),
        target_version=_integer(body, "target_version"),
        target_files=_text(body, "target_files"),
        statements=tuple(_texts(body, "statements")),
        options=_object(body["options"]),
        states=states,
        written=written,
        copied=CopiedFiles(
            _count(copied, "files"),
            _count(copied, "bytes"),
            _count(copied, "linked"),
            _count(copied, "shared"),
            _text(copied, "sha256"),
        ),
        notes=tuple(_texts(body, "notes")),
        user=_text(body, "user"),
        host=_text(body, "host"),
        product=_text(body, "product"),
        time=parse_instant(_text(body, "time"), "time"),
        key=_text(body, "key") if "key" in body else None,
    )


def _state(found: Any) -> EditedState:
    item = _object(found)
    if not isinstance(item["follows"], bool):
        raise TypeError(f"follows is {item['follows']!r}, expected true or false")
    state = EditedState(
        _text(item, "name"),
        _count(item, "removed"),
        _count(item, "added"),
        _count(item, "changed"),
        _text(item, "before"),
        _text(item, "after"),
        item["follows"],
    )
    if "rows_before" not in item:
        return state
    before, after = (tuple(map(_object, _list(item, name))) for name in ("rows_before", "rows_after"))
    return replace(state, rows_before=before, rows_after=after)


def _object(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise TypeError(f"found {type(found).__name__}, expected an object")
    return found


def _list(item: Mapping[str, Any], name: str) -> list[Any]:
    if not isinstance(item[name], list):
        raise TypeError(f"{name} is {type(item[name]).__name__}, expected a list")
    found: list[Any] = item[name]
    return found


def _text(item: Mapping[str, Any], name: str) -> str:
    if not isinstance(item[name], str):
        raise TypeError(f"{name} is {type(item[name]).__name__}, expected a text")
    found: str = item[name]
    return found


def _texts(item: Mapping[str, Any], name: str) -> Sequence[str]:
    return [_text({name: each}, name) for each in _list(item, name)]


def _integer(item: Mapping[str, Any], name: str) -> int:
    if type(item[name]) is not int:
        raise TypeError(f"{name} is {item[name]!r}, expected an integer")
    found: int = item[name]
    return found


def _count(item: Mapping[str, Any], name: str) -> int:
    if (found := _integer(item, name)) < 0:
        raise ValueError(f"{name} is {found}, expected a count")
    return found
