"""The permanent properties of a store: `store.json`, with the identity that distinguishes a dropped store from a later
one of the same name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import xxhash

from statestore.catalog.log.log_names import STORE_FILE
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, NotFoundError, UnsupportedError, shown
from statestore.formats.kafka_rows.time_segments import default_versioned_interval, time_segment
from statestore.formats.values.key_groups import MAX_PARALLELISM
from statestore.formats.values.times import MAX_MS
from statestore.formats.values.types import TIME, schema_from_json, schema_to_json

if TYPE_CHECKING:
    from statestore.catalog.log.storage import Guard

DESCRIPTION_COPY = "description.json"
"""The copy of the description in the folder of a store that took the name of a dropped one."""
DROPPED = "dropped/"
"""The folder in which a dropped store of an object store leaves an empty object, named by its identity."""
REPLACED = ".replaced-"
"""The beginning of the name of a folder with a store that a running or interrupted rebuild has moved away."""
ID_DIGITS = 32
FORMAT_VERSION = 1
CAPTURED_FORMAT = 2  # of a store that keeps the versions of a source
KINDS = ("versioned", "key_value", "window", "join_window", "session", "keyed")
KEYED = "keyed"
MAX_NAME_BYTES = 200
"""Upper bound of the name of a store, and of a state in one, in UTF-8."""
SERDES = ("natural", "kafka")
FOLDER = re.compile("[0-9a-f]{32}")
_LONGEST = 1 << 60  # milliseconds; the retention of a join is a multiple of its windows


@dataclass(frozen=True)
class Windowing:
    """The time rules of a store of windows or sessions, in milliseconds, and further options of its kind."""

    retention: int
    segment_interval: int
    window_size: int = 0  # window stores
    duplicates: bool = False
    time_ordered: bool = False
    before: int = 0  # join-window stores
    after: int = 0
    segments: int = 0
    batched_changelog: bool = False

    def time_segment(self, time: int) -> int:
        """Return the time segment of a time."""
        return time_segment(time, self.segment_interval)

    def first_live_time_segment(self, stream_time: int) -> int:
        """Return the first segment that is not dropped; writes into earlier segments are refused."""
        if self.segments:
            return self.time_segment(stream_time) - self.segments + 1
        return self.time_segment(stream_time - self.retention)

    def first_visible(self, stream_time: int) -> int:
        """Return the earliest time that reads see: rows are dropped by segment, but visible by the millisecond."""
        if self.segments:
            return self.first_live_time_segment(stream_time) * self.segment_interval
        return stream_time - self.retention + (0 if self.time_ordered else 1)


@dataclass(frozen=True)
class Captured:
    """The state of a source whose versions a captured store keeps.

    ``source``, ``path``, ``words``, ``state`` and ``kind`` are the identity of the source, where it is, its words for
    one version and several, and the name and the kind of the state there. ``key`` are the columns that a user calls the
    key, ``row_key`` those in which no two rows are equal, () for a bag. ``hidden`` are columns of the store that are no
    columns of the state: a number among equal rows, or a digest in the place of a key that keys here cannot have.
    ``own_times``: rows begin at the times of their records, and not at the time of the version that wrote them.
    """

    source: str
    path: str
    state: str
    kind: str
    words: tuple[str, str]
    key: tuple[str, ...]
    row_key: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    own_times: bool = False


@dataclass(frozen=True)
class StoreSpec:
    """Kind, schemas, key groups and retention of one store. Durations are milliseconds; None: kept for ever.

    ``key`` is the row key: the declared key columns, then the columns by which the kind distinguishes rows of one key
    (start and end of windows and sessions).
    """

    name: str
    store_id: str  # never reused: distinguishes a dropped store from a later one of the same name
    kind: str
    key: pa.Schema
    value: pa.Schema
    history_retention: int | None
    segment_interval: int | None
    serde: str
    key_groups: int
    windowing: Windowing | None = None
    folder: str = ""  # of its files below the store's own, in an object store where another store had this name before
    captured: Captured | None = None  # None: a store of users, who write to it

    @property
    def user_key(self) -> pa.Schema:
        """The key columns that the user declared."""
        return pa.schema(list(self.key)[: len(self.key) - len(window_columns(self.kind, self.windowing))])

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(self.key.names)

    @property
    def value_names(self) -> tuple[str, ...]:
        return tuple(self.value.names)

    @property
    def has_hot_tier(self) -> bool:
        """Whether the store is a live store, which has one writer at a time."""
        return self.kind != KEYED and (self.kind != "versioned" or self.serde == "kafka")

    def segment_schema(self, tombstone: bool, belief: bool) -> pa.Schema:
        """Return the columns of a segment file, in order (docs/format.md)."""
        fields = [*self.key, *([] if tombstone else self.value)]
        fields += [
            pa.field("valid_from", TIME, nullable=False),
            pa.field("valid_to", TIME),
            pa.field("_added", pa.int64(), nullable=False),
            pa.field("_closed", pa.int64(), nullable=False),
            pa.field("_split", pa.bool_(), nullable=False),
        ]
        if belief:
            fields.append(pa.field("_dropped", pa.int64(), nullable=False))
        return pa.schema(fields)

    def record_schema(self) -> pa.Schema:
        """Return the columns of acknowledged writes, as the changelog holds them."""
        flags = [pa.field("timestamp", TIME, nullable=False), pa.field("_tombstone", pa.bool_(), nullable=False)]
        return pa.schema([*self.key, *self.value, *flags])


def window_columns(kind: str, windowing: Windowing | None) -> list[pa.Field]:
    """Return the key columns that a kind adds to the user's."""
    sequence = pa.field("sequence", pa.int32(), nullable=False)
    if kind == "window":
        return [*_times("window_start", "window_end"), *([sequence] if windowing and windowing.duplicates else [])]
    if kind == "join_window":
        return [*_times("event_time"), sequence]
    if kind == "session":
        return _times("session_start", "session_end")
    return []


def _times(*names: str) -> list[pa.Field]:
    return [pa.field(name, TIME, nullable=False) for name in names]


def row_key(user_key: pa.Schema, kind: str, windowing: Windowing | None) -> pa.Schema:
    """Return the user's key columns and those of the kind. Raises InvalidInputError WRONG_SCHEMA if both have a
    name."""
    added = window_columns(kind, windowing)
    taken = [field.name for field in added if field.name in set(map(str.lower, user_key.names))]
    if taken:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"key columns {taken}: a {kind} store adds columns of these names itself; rename the key columns",
        )
    return pa.schema([*user_key, *added])


def check_kind(kind: str) -> None:
    """Raise UnsupportedError UNSUPPORTED_KIND for a kind that this release does not have."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_KIND,
            f"store kind {shown(kind)}: this release has {', '.join(KINDS)}; choose one of them",
        )


def check_spec(spec: StoreSpec) -> StoreSpec:
    """Return the spec with defaults filled in. Raises InvalidInputError or UnsupportedError, which names the option."""
    check_kind(spec.kind)
    if not isinstance(spec.serde, str) or spec.serde not in SERDES:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_SERDE,
            f"serde {shown(spec.serde)}: this release has {', '.join(SERDES)}; choose one of them",
        )
    if type(spec.key_groups) is not int or not 1 <= spec.key_groups <= MAX_PARALLELISM:
        raise InvalidInputError(
            ErrorCode.INVALID_KEY_GROUPS,
            f"key_groups is {shown(spec.key_groups)}; expected an int from 1 to {MAX_PARALLELISM}",
        )
    key_names = set(map(str.lower, spec.key_names))
    shared = [name for name in spec.value_names if name.lower() in key_names]
    if shared:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"columns {shared} are in the key and in the value (Spark and DuckDB ignore case); rename one of each",
        )
    if (spec.windowing is None) != (spec.kind in ("versioned", "key_value", KEYED)):
        raise InvalidInputError(ErrorCode.WRONG_OPTIONS, f"store kind {spec.kind!r} with windowing {spec.windowing}")
    if spec.kind == "versioned" and spec.serde == "kafka" and spec.history_retention is None:
        raise InvalidInputError(
            ErrorCode.MISSING_OPTION,
            'a versioned store with Kafka\'s serdes needs history_retention; for example "1 day"',
        )
    if spec.captured is not None:
        _check_captured(spec, spec.captured)
    if spec.history_retention is not None and spec.segment_interval is None:
        return replace(spec, segment_interval=default_versioned_interval(spec.history_retention))
    if spec.segment_interval is not None and spec.segment_interval < 1:
        raise InvalidInputError(ErrorCode.INVALID_DURATION, "segment_interval is 0; expected at least 1 millisecond")
    return spec


def _check_captured(spec: StoreSpec, captured: Captured) -> None:
    """Raise InvalidInputError WRONG_OPTIONS unless the store can keep the state as it is described."""
    if (spec.kind, spec.serde, spec.history_retention) != ("versioned", "natural", None):
        raise InvalidInputError(
            ErrorCode.WRONG_OPTIONS,
            f"a captured store is versioned, with serde 'natural' and without a retention; found kind {spec.kind!r}, "
            f"serde {spec.serde!r} and a retention of {spec.history_retention} ms",
        )
    columns, shown_key = {*spec.key_names, *spec.value_names}, {*captured.key, *captured.row_key}
    if not {*captured.hidden, *shown_key} <= columns or not shown_key.isdisjoint(captured.hidden):
        raise InvalidInputError(
            ErrorCode.WRONG_OPTIONS,
            f"a captured store with columns {sorted(columns)}: key {captured.key}, row key {captured.row_key} and "
            f"hidden columns {captured.hidden} have to be among them, and no key column is hidden",
        )


def encode_spec(spec: StoreSpec) -> bytes:
    data = {
        "format": FORMAT_VERSION if spec.captured is None else CAPTURED_FORMAT,
        "name": spec.name,
        "id": spec.store_id,
        "kind": spec.kind,
        "key": schema_to_json(spec.key),
        "value": schema_to_json(spec.value),
        "history_retention_ms": spec.history_retention,
        "segment_interval_ms": spec.segment_interval,
        "serde": spec.serde,
        "key_groups": spec.key_groups,
    }
    if spec.windowing is not None:
        data["windowing"] = asdict(spec.windowing)
    if spec.folder:
        data["folder"] = spec.folder
    if spec.captured is not None:
        data["captured"] = asdict(spec.captured)
    return json.dumps({**data, "checksum": _checksum(data)}, indent=2).encode()


def decode_spec(data: bytes, where: str) -> StoreSpec:
    """Return the spec in the bytes of ``store.json``.

    Raises CorruptError STORE_CORRUPT, which names ``where``, if the bytes are not the result of encode_spec.
    """
    try:
        fields: dict[str, Any] = json.loads(data)
        actual, expected = _checksum(fields), fields["checksum"]
        if actual != expected:
            raise ValueError(f"checksum {actual}, but the file records {expected}")
        version = fields["format"]
        if version not in (CAPTURED_FORMAT, FORMAT_VERSION):
            raise UnsupportedError(
                ErrorCode.UNSUPPORTED_FORMAT,
                f"{where}: store format {version!r}, but this release reads {CAPTURED_FORMAT}; upgrade statestore",
            )
        if ("captured" in fields) != (version == CAPTURED_FORMAT):
            raise ValueError(f"a captured state in format {version}")
        if not fields["key"]:
            raise ValueError("it has no key")
        for field in ("name", "id", "kind", "serde"):
            _check_text(fields[field], field)
        spec = StoreSpec(
            name=fields["name"],
            store_id=fields["id"],
            kind=fields["kind"],
            key=_schema(fields["key"], nullable=False),
            value=_schema(fields["value"], nullable=True),
            history_retention=_duration(fields["history_retention_ms"]),
            segment_interval=_duration(fields["segment_interval_ms"]),
            serde=fields["serde"],
            key_groups=fields["key_groups"],
            windowing=_windowing(fields["windowing"]) if "windowing" in fields else None,
            folder=_folder(fields.get("folder", "")),
            captured=_captured(fields["captured"]) if "captured" in fields else None,
        )
        return check_spec(spec)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise CorruptError(
            ErrorCode.STORE_CORRUPT,
            f"{where}: not a store description ({type(error).__name__}: {error}); restore it from a copy",
        ) from error


def _checksum(fields: dict[str, Any]) -> str:
    """Return the XXH3-64 of the canonical JSON of all fields except the checksum; every later format keeps this
    rule."""
    rest = {name: value for name, value in fields.items() if name != "checksum"}
    return xxhash.xxh3_64_hexdigest(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode())


def _schema(fields: list[dict[str, str]], nullable: bool) -> pa.Schema:
    return pa.schema([f.with_nullable(nullable) for f in schema_from_json(fields)])


def _duration(value: Any) -> int | None:
    if value is not None and (type(value) is not int or not 0 <= value <= MAX_MS):
        raise ValueError(f"{value!r} is not a duration")
    return value


def _windowing(fields: Mapping[str, Any]) -> Windowing:
    windowing = Windowing(**fields)
    for name, default in asdict(Windowing(0, 0)).items():
        value = getattr(windowing, name)
        if type(value) is not type(default) or not 0 <= value <= _LONGEST:
            raise ValueError(f"{name} of its windows is {value!r}")
    if windowing.segment_interval < 1:
        raise ValueError("segment_interval of its windows is 0")
    return windowing


def _captured(fields: Mapping[str, Any]) -> Captured:
    values: dict[str, Any] = {n: tuple(value) if type(value) is list else value for n, value in fields.items()}
    captured = Captured(**values)
    for name, value in asdict(captured).items():
        if name == "own_times":
            if type(value) is not bool:
                raise ValueError(f"own_times is {value!r}")
            continue
        is_list = name in ("words", "key", "row_key", "hidden")
        if is_list != (type(value) is tuple):
            raise ValueError(f"{name} of the captured state is {value!r}")
        for text in value if is_list else (value,):
            _check_text(text, name)
    if len(captured.words) != 2:
        raise ValueError(f"words are {captured.words!r}")
    return captured


def _folder(value: Any) -> str:
    if type(value) is not str or (value and not FOLDER.fullmatch(value)):
        raise ValueError(f"folder is {value!r}, expected 32 hexadecimal digits")
    return value


def _check_text(value: Any, what: str) -> None:
    if type(value) is not str:
        raise ValueError(f"{what} is {value!r}, expected text")
    value.encode()  # half a surrogate pair is not text and raises ValueError, too


def identity_guard(store_id: str, after: str = "") -> Guard:
    """Return a guard that permits new files only while the store with this identity is in the directory.

    ``after`` is a file that has to exist beside the new one (`Guard`).
    """

    from statestore.catalog.log.storage import Guard  # for writers alone

    def check(data: bytes | None) -> None:
        if data is None or stored_identity(data) != store_id:
            raise replaced(STORE_FILE, store_id)

    return Guard(STORE_FILE, check, after)


def stored_identity(data: bytes) -> str:
    """Return the identity in the bytes of ``store.json``. Raises CorruptError STORE_CORRUPT if they have none."""
    try:
        found = json.loads(data)["id"]
        if type(found) is str:
            return found
    except (LookupError, TypeError, ValueError, RecursionError):
        pass
    raise CorruptError(ErrorCode.STORE_CORRUPT, f"{STORE_FILE}: not a store description; restore it from a copy")


def replaced(where: str, store_id: str) -> NotFoundError:
    """Return the error of a handle, table or connection whose store was dropped or rebuilt since it was opened."""
    return NotFoundError(
        ErrorCode.STORE_REPLACED,
        f"{where}: the store that was opened here (id {store_id}) is gone: it was dropped or rebuilt, "
        "or another store has taken its place; open it again",
    )
