"""Settings of stores of Kafka Streams by users, because nothing on disk does: options of a read, or one TOML file.

    application = "orders"

    [stores.per-minute]
    kind = "timestamped-window"
    key_serde = "string"
    value_serde = "long"
    window_size = 60000

An option of the read counts before the file, and the file before a guess. Times are milliseconds. A serde with a
schema, such as "avro:order.avsc", names its file; a relative path begins at the folder of the TOML file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, close_matches, shown
from statestore.formats.kafka.changelogs.export_forms import NO_OPTIONS, RecordOptions
from statestore.formats.kafka.columns.serde_columns import cell_serde
from statestore.formats.kafka.columns.store_form import serde_pair
from statestore.formats.kafka.columns.store_kinds import KINDS
from statestore.formats.kafka.schemas.schema_files import with_schema_file
from statestore.formats.values.expansion import parse_toml
from statestore.formats.values.times import parse_time

MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class StoreUse:
    """A store in a topology: its sub-topology, the processors that use it, and the topics which that reads."""

    subtopology: int
    is_global: bool
    processors: tuple[str, ...]
    topics: tuple[str, ...]

    def shown(self) -> str:
        """A text for users."""
        place = "a global store" if self.is_global else f"sub-topology {self.subtopology}"
        processors = f"processor{'s' if len(self.processors) > 1 else ''} {', '.join(self.processors)}"
        return f"{place}, {processors}, reads {', '.join(self.topics) or 'no topic'}"


@dataclass(frozen=True)
class Given:
    """Settings of a store; None: not given. ``window_size`` and ``retention`` are milliseconds."""

    kind: str | None = None
    key_serde: str | None = None
    value_serde: str | None = None
    window_size: int | None = None
    retention: int | None = None


@dataclass(frozen=True)
class StoreSettings:
    """Settings of the stores of an application: ``every`` about all of them, ``by_store`` about some.

    ``topology`` is who uses which store.

    Changelogs are read up to ``until_offset`` (an offset, or "partition:offset,...") and ``until_time`` (milliseconds).
    ``records``: how files of records are written.
    """

    application: str | None = None
    every: Given = Given()
    by_store: Mapping[str, Given] = field(default_factory=dict)
    allow_unflushed: bool = False
    hide_expired: bool = False
    topology: Mapping[str, StoreUse] = field(default_factory=dict)
    until_offset: str | None = None
    until_time: int | None = None
    records: RecordOptions = NO_OPTIONS

    def of(self, store: str) -> Given:
        """Return the settings of one store."""
        own = self.by_store.get(store, Given())
        given = {each.name: getattr(self.every, each.name) for each in fields(Given)}
        return replace(own, **{name: value for name, value in given.items() if value is not None})


_TYPES = {"kind": str, "key_serde": str, "value_serde": str, "window_size": int, "retention": int}


def settings_of(options: Mapping[str, str]) -> StoreSettings:
    """Return the settings in options of a read, by lower-case name, with those of ``storesFile``.

    Raises InvalidInputError INVALID_OPTION, KAFKA_STORE_KIND or STORES_FILE, UnsupportedError UNSUPPORTED_SERDE.
    """
    settings = read_settings(options["storesfile"]) if "storesfile" in options else StoreSettings()
    every = Given(
        options.get("kind"),
        options.get("keyserde"),
        options.get("valueserde"),
        _milliseconds(options, "windowSize"),
        _milliseconds(options, "retention"),
    )
    every = _checked(every, "the options", Path())
    return replace(
        settings,
        application=options.get("application", settings.application),
        every=every,
        allow_unflushed=_bool(options, "allowUnflushed"),
        hide_expired=_bool(options, "hideExpired"),
        topology=read_topology(options["topologyfile"]) if "topologyfile" in options else {},
        until_offset=options.get("untiloffset"),
        until_time=parse_time(options["untiltime"], "option untilTime") // 1000 if "untiltime" in options else None,
        records=RecordOptions(*(options.get(f"record{name}") for name in ("columns", "text", "separator", "null"))),
    )


def read_settings(path: str) -> StoreSettings:
    """Return the settings in a TOML file. Raises InvalidInputError STORES_FILE, which names the file and the entry."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES)
        found = parse_toml(content.decode())
    except (OSError, ValueError) as error:  # of TOML and of UTF-8, too
        raise _wrong(path, str(error)) from error
    unknown = set(found) - {"application", "stores"}
    if unknown:
        raise _wrong(path, f"found {sorted(unknown)[0]!r}, expected application and stores")
    stores, application = found.get("stores", {}), found.get("application")
    if not isinstance(stores, dict) or not isinstance(application, str | None):
        raise _wrong(path, "expected a text as application, and a table [stores.NAME] for each store")
    return StoreSettings(application, by_store={name: _given(path, name, entry) for name, entry in stores.items()})


def _given(path: str, store: str, entry: Any) -> Given:
    if not isinstance(entry, dict):
        raise _wrong(path, f"stores.{store} is {shown(entry)}, expected a table [stores.{store}]")
    for name, value in entry.items():
        if name not in _TYPES:
            close = close_matches(name, _TYPES, 1)
            hint = f"did you mean {close[0]}?" if close else f"expected {', '.join(_TYPES)}"
            raise _wrong(path, f"stores.{store} has {name!r}; {hint}")
        if type(value) is not _TYPES[name] or (isinstance(value, int) and value <= 0):
            expected = "a text" if _TYPES[name] is str else "milliseconds, an integer above 0"
            raise _wrong(path, f"stores.{store}.{name} is {shown(value)}; expected {expected}")
    return _checked(Given(**entry), f"{path}, stores.{store}", Path(path).parent)


def _checked(given: Given, where: str, folder: Path) -> Given:
    """Return the settings, with the schemas of serdes from their files, whose relative paths begin at a folder.

    Raises an error for an unknown kind or serde.
    """
    if given.kind is not None and given.kind not in KINDS:
        close = close_matches(given.kind, KINDS, 1, 0.4)
        hint = f"did you mean {close[0]}? There are" if close else "there are"
        raise InvalidInputError(
            ErrorCode.KAFKA_STORE_KIND, f"{where}: no kind of store {given.kind!r}; {hint} {', '.join(KINDS)}"
        )

    def whole(serde: str | None) -> str | None:
        if serde is None:
            return None
        found = with_schema_file(serde, where, folder)
        for name in serde_pair(found):
            cell_serde(name)
        return found

    return replace(given, key_serde=whole(given.key_serde), value_serde=whole(given.value_serde))


def _milliseconds(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.isdecimal() or int(text) == 0 or int(text) >= 1 << 63:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"option {name} is {shown(text)}; expected milliseconds, an integer above 0"
        )
    return int(text)


def _bool(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name.lower(), "false").lower()
    if text not in ("true", "false"):
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"option {name} is {shown(text)}; expected true or false")
    return text == "true"


def _wrong(path: str, found: str) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.STORES_FILE, f"{path}: {found}; correct the file, or write one anew with statestore describe"
    )


# Descriptions of topologies, as ``Topology.describe()`` of Kafka Streams prints them.
#
#     Sub-topology: 3
#      Source: KSTREAM-SOURCE-0000000006 (topics: [orders])
#        --> KSTREAM-REDUCE-0000000013
#      Processor: KSTREAM-REDUCE-0000000013 (stores: [per-minute])
#
# Lines that are not of these forms are left out, so a description may stand within a log.


_SUBTOPOLOGY = re.compile(r"\s*Sub-topology: (\d+)( for global store.*)?")
_SOURCE = re.compile(r"\s*Source: (\S+) \((?:topics: \[(.*)\]|topic pattern: (.*))\)")
_PROCESSOR = re.compile(r"\s*Processor: (\S+) \(stores: \[(.*)\]\)")


def read_topology(path: str) -> Mapping[str, StoreUse]:
    """Return the stores in the description that a file holds. Raises InvalidInputError STORES_FILE without any."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(ErrorCode.STORES_FILE, f"{path}: {error}; name a file with a topology") from error
    found = parse_topology(text)
    if not found:
        raise InvalidInputError(
            ErrorCode.STORES_FILE,
            f"{path}: found no store, expected lines such as 'Processor: NAME (stores: [counts])', which "
            "Topology.describe() prints",
        )
    return found


def parse_topology(text: str) -> dict[str, StoreUse]:
    """Return the stores of a description by name."""
    number, is_global = 0, False
    topics: dict[int, list[str]] = {}
    processors: dict[str, tuple[int, bool, list[str]]] = {}
    for line in text.splitlines():
        if begin := _SUBTOPOLOGY.match(line):
            number, is_global = int(begin[1]), begin[2] is not None
        elif source := _SOURCE.match(line):
            topics.setdefault(number, []).extend(_names(source[2]) if source[2] is not None else [source[3]])
        elif processor := _PROCESSOR.match(line):
            for store in _names(processor[2]):
                processors.setdefault(store, (number, is_global, []))[2].append(processor[1])
    return {
        store: StoreUse(where, shared, tuple(users), tuple(topics.get(where, ())))
        for store, (where, shared, users) in processors.items()
    }


def _names(text: str) -> list[str]:
    return [name for name in (each.strip() for each in text.split(",")) if name]
