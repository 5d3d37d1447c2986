"""The forms of sources of databases: JDBC, MongoDB, and change data capture (CDC).

Source: ``JdbcSourceSplitSerializer``; ``MongoSourceSplitSerializer``, ``MongoSourceEnumStateSerializer``; of CDC
``MySqlSplitSerializer`` (versions 2 to 4) and ``SourceSplitSerializer`` (5 and 6), on which all other databases build.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from statestore.formats.flink.connectors.connector_form import Cells, ConnectorForm
from statestore.formats.flink.connectors.element_input import ElementInput
from statestore.formats.flink.connectors.kafka_forms import SOURCE_STATE

_SCAN_SPLIT = 1
_SNAPSHOT, _STREAM = 1, 2
_FIRST_OF_ALL, _SUSPENDED, _COMPLETED = 5, 4, 6
"""Versions of CDC: from which on all databases but MySQL write, and that have these fields."""
_NOTHING = b"\xac\xed\x00\x05\x70"  # null, as Java writes it
_TEXT, _INT, _BYTES, _BOOL = pa.string(), pa.int32(), pa.binary(), pa.bool_()
_POSITION = pa.map_(_TEXT, _TEXT)


def _jdbc(source: ElementInput, version: int) -> Iterator[Cells]:
    split, statement = source.utf("a split's id"), source.utf("a statement")
    yield split, statement, source.java_object("parameters"), source.java_object("an offset")


def _document(source: ElementInput, what: str) -> str:
    """A document of JSON, as text."""
    start, text = source.at, source.utf(what)
    if not isinstance(source.json(text, what, start), dict):
        raise source.error(f"found {what} {text[:80]!r}, expected a document", start)
    return text


def _mongo_cells(source: ElementInput) -> Cells:
    kind = source.i32("the kind of a split")
    if kind != _SCAN_SPLIT:
        raise source.error(f"found a split of kind {kind}, expected {_SCAN_SPLIT}", source.at - 4)
    split, database, collection = (source.utf(each) for each in ("a split's id", "a database", "a collection"))
    bounds = tuple(_document(source, each) for each in ("a lower bound", "an upper bound", "a hint"))
    return split, database, collection, *bounds, source.at_least(0, source.i32("an offset"), "an offset")


def _mongo_split(source: ElementInput, version: int) -> Iterator[Cells]:
    yield _mongo_cells(source)


def _mongo_enumerator(source: ElementInput, version: int) -> Iterator[Cells]:
    none = (None,) * len(_MONGO)
    rows: list[Cells] = []
    for state in ("remaining", "processed"):
        rows += [(state, source.utf("a collection"), *none) for _ in source.entries(2, "collections")]
    rows += [("pending", None, *_mongo_cells(source)) for _ in source.entries(20, "splits")]
    for _ in source.entries(22, "splits"):
        source.utf("a split's id")
        rows.append(("assigned", None, *_mongo_cells(source)))
    initialized = source.boolean("whether the enumerator is initialized")
    for row in rows or [(None, None, *none)]:
        yield *row, initialized


def _cdc(source: ElementInput, version: int) -> Iterator[Cells]:
    kind = source.i32("the kind of a split")
    if kind == _SNAPSHOT:
        yield _snapshot_split(source, version)
    elif kind == _STREAM:
        yield _stream_split(source, version)
    else:
        raise source.error(f"found a split of kind {kind}, expected 1 or 2", source.at - 4)


def _snapshot_split(source: ElementInput, version: int) -> Cells:
    if version >= _FIRST_OF_ALL:
        source.boolean("whether catalogs go before schemas")
    table, split, key = (source.utf(each) for each in ("a table", "a split's id", "the type of a key"))
    chunk = (_chunk_bound(source), _chunk_bound(source))
    mark = _position(source)
    tables = _tables(source, version)
    return split, "snapshot", table, None, None, mark, key, *chunk, None, tables, None, None


def _stream_split(source: ElementInput, version: int) -> Cells:
    split, key = source.utf("a split's id"), source.utf("the type of a key")
    if key:
        raise source.error(f"found key type {key[:80]!r} of a split of changes, expected none")
    position, stop = _position(source), _position(source)
    for _ in source.entries(9, "finished splits"):
        source.utf("a table")
        source.utf("a split's id")
        for _ in range(2 if version < _FIRST_OF_ALL else 3):  # the third is the class of offsets
            _chunk_bound(source)
        _position(source)
        if version >= _FIRST_OF_ALL:
            source.boolean("whether catalogs go before schemas")
    tables = _tables(source, version)
    finished = source.at_least(0, source.i32("finished splits"), "finished splits") if version > 2 else None
    suspended = source.boolean("whether the split is suspended") if version >= _SUSPENDED else None
    completed = source.boolean("whether the snapshot is complete") if version >= _COMPLETED else None
    return split, "stream", None, position, stop, None, None, None, None, finished, tables, suspended, completed


def _chunk_bound(source: ElementInput) -> bytes | None:
    """An object of Java in hexadecimal digits."""
    start, digits = source.at, source.utf("an object of Java")
    try:
        found = bytes.fromhex(digits)
    except ValueError:
        found = b""
    if not found.startswith(_NOTHING[:4]):
        raise source.error(f"found {digits[:24]!r}, expected an object of Java in hexadecimal digits", start)
    return None if found == _NOTHING else found


def _position(source: ElementInput) -> list[tuple[str, str | None]] | None:
    """The names and texts that make a position in a database's log."""
    if not source.boolean("whether there is a position"):
        return None
    start, data = source.at, source.sized("a position")
    found = source.json(source.text(data, "a position"), "a position", start)
    if not isinstance(found, dict) or not all(each is None or isinstance(each, str) for each in found.values()):
        raise source.error("found a position that is not a document of texts", start)
    return list(found.items())


def _tables(source: ElementInput, version: int) -> list[str]:
    """The names of tables whose columns the split knows."""
    found = []
    for _ in source.entries(6, "tables"):
        if version >= _FIRST_OF_ALL:
            source.boolean("whether catalogs go before schemas")
        found.append(source.utf("a table"))
        start = source.at
        source.json(source.text(source.sized("columns of a table"), "columns of a table"), "columns of a table", start)
    return found


JDBC_SPLIT = ConnectorForm(
    "jdbc_split",
    "a split of the JDBC source",
    pa.schema([("split_id", _TEXT), ("statement", _TEXT), ("parameters", _BYTES), ("reader_position", _BYTES)]),
    _jdbc,
    range(1),
    (SOURCE_STATE,),
)
_MONGO: list[tuple[str, pa.DataType]] = [
    ("split_id", _TEXT),
    ("database", _TEXT),
    ("collection", _TEXT),
    ("least", _TEXT),
    ("most", _TEXT),
    ("hint", _TEXT),
    ("offset", _INT),
]
MONGO_SPLIT = ConnectorForm(
    "mongo_split", "a split of the MongoDB source", pa.schema(_MONGO), _mongo_split, range(1), (SOURCE_STATE,)
)
MONGO_ENUMERATOR = ConnectorForm(
    "mongo_enumerator",
    "the enumerator of the MongoDB source",
    pa.schema([("state", _TEXT), ("namespace", _TEXT), *_MONGO, ("initialized", _BOOL)]),
    _mongo_enumerator,
    range(1),
    many=True,
)
CDC_SPLIT = ConnectorForm(
    "cdc_split",
    "a split of a source of change data capture",
    pa.schema(
        [
            ("split_id", _TEXT),
            ("kind", _TEXT),
            ("table", _TEXT),
            ("position", _POSITION),
            ("stop_position", _POSITION),
            ("high_watermark", _POSITION),
            ("key_type", _TEXT),
            ("chunk_start", _BYTES),
            ("chunk_end", _BYTES),
            ("finished_splits", _INT),
            ("tables", pa.list_(_TEXT)),
            ("suspended", _BOOL),
            ("snapshot_completed", _BOOL),
        ]
    ),
    _cdc,
    range(2, 7),
    (SOURCE_STATE,),
)
