"""A store as a reader sees it: its kind, and the facts without which its rows cannot be decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from statestore.formats.kafka.schemas.schema_files import has_schema

RowForm = Literal[
    "plain",
    "window",
    "time-ordered window",
    "session",
    "time-ordered session",
    "versioned",
    "outer-join buffer",
    "subscription",
    "grace buffer",
    "suppression",
]

ValueForm = Literal["bare", "timestamped", "headers", "session-headers"]


@dataclass(frozen=True)
class StoreForm:
    """Facts about a store that its reader needs and its files do not name.

    ``kind`` is a key of `statestore.formats.kafka.columns.store_kinds.KINDS`. The serdes are named as in
    `statestore.formats.kafka.columns.serde_columns`; "bytes" leaves the bytes as they are. Two names with a slash
    between them, like "string/long", are for the left and the right values of an outer join's buffer, and for the
    foreign and the primary key of foreign-key subscriptions. ``window_size`` is in ms; without it, the ends of windows
    are null.
    """

    kind: str
    key_serde: str = "bytes"
    value_serde: str = "bytes"
    window_size: int | None = None


@dataclass(frozen=True)
class StoreKind:
    """A kind of store.

    ``meaning`` is a line for users. ``rows`` is the form of the row keys. ``families`` are the column families in which
    rows may lie, newest first, and ``values`` the form of the values in each. ``keys`` are the columns by which users
    ask, ``row_keys`` those that identify a row. ``segmented``: the store has one database for each segment of time.
    ``duplicates``: it keeps several values for a key and time. ``timestamp`` and ``headers``: it keeps those beside the
    value. ``has_past``: it keeps versions of the past. ``changelog_only``: it has no files.
    """

    name: str
    meaning: str
    rows: RowForm
    families: tuple[str, ...]
    values: tuple[ValueForm, ...]
    keys: tuple[str, ...]
    row_keys: tuple[str, ...]
    segmented: bool = False
    duplicates: bool = False
    timestamp: bool = False
    headers: bool = False
    has_past: bool = False
    changelog_only: bool = False


def serde_pair(names: str) -> tuple[str, str]:
    """The two serdes in "first/second"; one name stands for both. A serde with a schema is never split."""
    first, slash, second = names.partition("/")
    return (first, second) if slash and not has_schema(names) else (names, names)
