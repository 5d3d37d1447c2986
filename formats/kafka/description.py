"""The TOML file that says of an application's stores what nothing on disk says: found, guessed, and to be corrected."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from statestore.formats.kafka.columns.store_kinds import row_schema
from statestore.formats.kafka.known_store import KnownStore
from statestore.formats.kafka.topology import StoreUse

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_KEYS = {"kind": "kind", "key serde": "key_serde", "value serde": "value_serde"}


def describe_stores(application: str, stores: Iterable[KnownStore], topology: Mapping[str, StoreUse]) -> str:
    """Return the file. Each value has a comment that says where it comes from; a guess is to be checked."""
    known = list(stores)
    parts = [_head(application)]
    parts += [_store(store, topology.get(store.name)) for store in known]
    names = {store.name for store in known}
    parts += [
        _printable(f"# {name} ({use.shown()}) has no files: it is kept in memory, and only its changelog has it")
        for name, use in topology.items()
        if name not in names
    ]
    return "\n\n".join(parts) + "\n"


def _head(application: str) -> str:
    return (
        f"# What is known of the stores of the Kafka Streams application {_printable(application)}. Nothing on disk\n"
        "# names kinds and serdes, so check what is guessed, correct it, and give this file with --stores-file.\n"
        f"application = {json.dumps(application)}"
    )


def _store(store: KnownStore, use: StoreUse | None) -> str:
    lines = [f"[stores.{_name(store.name)}]"]
    if use is not None:
        lines.append(f"# {_printable(use.shown())}")
    values = {"kind": store.form.kind, "key serde": store.form.key_serde, "value serde": store.form.value_serde}
    for fact, key in _KEYS.items():
        stated = store.facts[fact]
        is_known = not stated.startswith("unknown")
        lines.append(f"# {_printable(stated)}")
        lines.append(f"{'' if is_known else '# '}{key} = {json.dumps(values[fact])}")
    if "window_end" in row_schema(store.form).names:
        size = store.form.window_size
        lines.append("# window_size = 60000  # milliseconds; not on disk" if size is None else f"window_size = {size}")
    if store.kind.segmented or store.kind.has_past:
        kept = store.retention
        lines.append("# retention = 86400000  # milliseconds; not on disk" if kept is None else f"retention = {kept}")
    return "\n".join(lines)


def _name(store: str) -> str:
    return store if _BARE.fullmatch(store) else json.dumps(store)


def _printable(text: str) -> str:
    """A comment has no control characters, line ends among them."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
