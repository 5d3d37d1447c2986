"""The partition in which Spark looks for a stored row, of every family of every stateful operator.

A row lies where the hash of the columns says by which its operator distributes its input: of an aggregation the columns
of the key, of a session window those before the start, of a join those before the number or the time of a row, of a
function with state the grouping key, by which rows of its timers and times to live lie, too. Only these columns are
decoded, and texts as their bytes, which are hashed as they are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.kernels.arrays import Ints
from statestore.formats.spark.checkpoint.checkpoint import DEFAULT_STORE, Checkpoint, Operator, Store
from statestore.formats.spark.checkpoint.schema_files import FamilySchema, KeyEncoder
from statestore.formats.spark.checkpoint.spark_schema import (
    BINARY,
    STRING,
    Field,
    Plain,
    SparkType,
    StructOf,
    has_collation,
)
from statestore.formats.spark.checkpoint.state_errors import corrupt_row, not_editable, refused
from statestore.formats.spark.checkpoint.state_views import StateView, state_views
from statestore.formats.spark.key_lookup import JOIN_COLUMNS, is_session
from statestore.formats.spark.providers.partition_load import FAMILY_BYTES
from statestore.formats.spark.rows.key_placement import partitions_of
from statestore.formats.spark.rows.row_encoding import RowForm, decode_keys
from statestore.formats.spark.rows.unsafe_row import decode_fields
from statestore.formats.spark.state_rows import row_form

_OF_FUNCTION = "transformWithState"
_OF_JOIN = "symmetricHashJoin"
_TIMES = {"_keyToTimestamp": 0, "_timestampToKey": 1}
_TIMERS = ("$procTimers", "$eventTimers")
_TTL = "$ttl_"
_OF_LISTS = ("$rowCounter_", "$min_", "$count_")
_MAP = "MapState"
_BEFORE_METADATA_JOIN = ("-keyToNumValues", "-keyWithIndexToValue")


@dataclass(frozen=True)
class Places:
    """The places of a family's rows: by the hash of these ``columns`` of the key, or of the field ``within`` the one.

    A struct is hashed field by field. Stored keys have ``front`` bytes before what ``encoder`` and ``form`` say, and
    ``key`` is their schema with texts as bytes. ``where`` names the family in errors.
    """

    where: str
    key: StructOf
    encoder: KeyEncoder
    form: RowForm
    front: int
    columns: tuple[int, ...]
    within: tuple[int, ...]

    def of(self, keys: Cells, count: int) -> Ints:
        """The partition, of ``count``, of each stored key. Raises InvalidInputError EDIT_REFUSED, CorruptError."""
        bare = keys.behind(self.front, "a key", corrupt_row) if self.front else keys
        struct = decode_keys(bare, self.key, self.encoder, self.form)
        fields, columns = self._placed(struct)
        found = partitions_of(columns, [field.type for field in fields], count)
        if found is None:
            kinds = ", ".join(_word(field.type) for field in fields)
            raise not_editable(f"{self.where}: the partition of a key with the types {kinds} is not known here")
        if (found < 0).any():
            raise not_editable(f"{self.where}: the partition of a key with a very long text is not known here")
        return found

    def _placed(self, struct: pa.StructArray) -> tuple[list[Field], list[pa.Array]]:
        schema = self.key
        fields = [schema.fields[number] for number in self.columns]
        columns = [struct.field(number) for number in self.columns]
        for number in self.within:
            kind = fields[0].type
            assert isinstance(kind, StructOf)
            fields, columns = [kind.fields[number]], [columns[0].field(number)]
        return fields, columns


def _word(kind: SparkType) -> str:
    return kind.name if isinstance(kind, Plain) else type(kind).__name__.removesuffix("Of").lower()


def places_of(checkpoint: Checkpoint, operator: Operator, store: Store, family: FamilySchema) -> Places:
    """Return the places of a family's rows. Raises UnsupportedError EDIT_UNSUPPORTED where that is not known."""
    where = f"family {family.name} of store {store.name} of operator {operator.operator_id} of {checkpoint.root.path}"
    if not family.recorded or family.opaque:
        raise not_editable(f"{where}: no schema file says its types; restore it from a copy")
    columns, within = _columns(operator, store, family, where)
    kinds = [family.key.fields[number].type for number in columns]
    if any(map(has_collation, kinds)):
        raise not_editable(f"{where}: its key has a text with a collation, whose partition is not known here")
    view = _view(checkpoint, operator, store, family)
    form = row_form(checkpoint, view)
    if form.whole is decode_fields:
        form = _of_columns(form, columns, key_encoder(store, family, bare=form.bare))
    front = FAMILY_BYTES if store.has_families else 0
    encoder = key_encoder(store, family, bare=form.bare)
    return Places(where, bytes_for_texts(family.key), encoder, form, front, columns, within)


def key_encoder(store: Store, family: FamilySchema, *, bare: bool) -> KeyEncoder:
    """How the keys of a family are encoded."""
    if store.has_families or bare:
        return family.encoder
    if store.prefix_columns is not None:
        return KeyEncoder("prefix", store.prefix_columns) if store.prefix_columns > 0 else family.encoder
    return KeyEncoder("prefix", len(family.key.fields) - 1) if is_session(store, family) else family.encoder


def bytes_for_texts(schema: StructOf) -> StructOf:
    """A schema in which texts are bytes: these are stored alike, and keep what is no UTF-8."""
    return StructOf(tuple(replace(field, type=_without_text(field.type)) for field in schema.fields))


def _without_text(kind: SparkType) -> SparkType:
    if isinstance(kind, StructOf):
        return bytes_for_texts(kind)
    return BINARY if kind == STRING else kind


def _of_columns(form: RowForm, columns: tuple[int, ...], encoder: KeyEncoder) -> RowForm:
    """The form that decodes these columns alone, where a key is one row."""
    if not form.bare and encoder.ordering != "none":
        return form
    return replace(form, whole=partial(decode_fields, only=frozenset(columns)))


def _view(checkpoint: Checkpoint, operator: Operator, store: Store, family: FamilySchema) -> StateView:
    for view in state_views(checkpoint, operator):
        if view.store.name == store.name and view.family.name == family.name:
            return view
    raise AssertionError(family.name)  # each family has a view


Chosen = tuple[tuple[int, ...], tuple[int, ...]]
"""Numbers of columns of a key; if one, those of the fields within it, from one struct to the next."""


def _columns(operator: Operator, store: Store, family: FamilySchema, where: str) -> Chosen:
    names = family.key.names
    every = tuple(range(len(names))), ()
    if operator.name.startswith(_OF_FUNCTION):
        return _columns_of_function(operator, family, where)
    if operator.name == _OF_JOIN or store.name.endswith(_BEFORE_METADATA_JOIN):
        return tuple(number for number, name in enumerate(names) if name not in JOIN_COLUMNS), ()
    if store.has_families or family.name != DEFAULT_STORE:
        raise not_editable(f"{where}: by what its rows are placed is not known here, of operator {operator.name!r}")
    if store.prefix_columns:
        return tuple(range(store.prefix_columns)), ()
    return (tuple(range(len(names) - 1)), ()) if is_session(store, family) else every


def _columns_of_function(operator: Operator, family: FamilySchema, where: str) -> Chosen:
    name, kinds = family.name, operator.variables
    every = tuple(range(len(family.key.fields))), ()
    if name.startswith(_TIMERS):
        for end, column in _TIMES.items():
            if name.endswith(end):
                return (column,), ()
    elif name.startswith(_TTL):
        is_map = kinds.get(name.removeprefix(_TTL)) == _MAP
        return (1,), (0,) if is_map else ()
    elif name in kinds:
        return ((0,), ()) if kinds[name] == _MAP else every
    elif name.startswith(_OF_LISTS) or name == DEFAULT_STORE:
        return every
    raise not_editable(f"{where}: by what its rows are placed is not known here")


Check = Callable[[Ints], None]


def check_places(where: str, partition: int, count: int) -> Check:
    """The check that rows belong to a partition of ``count``. It raises InvalidInputError EDIT_REFUSED."""

    def check(found: Ints) -> None:
        elsewhere = int((found != partition).sum())
        if elsewhere:
            raise refused(
                f"{where}: {elsewhere} rows are stored in partition {partition} of {count}, and belong to another one "
                "by their hash, so the query does not find them; delete them, or let the query run with the number of "
                "partitions with which they were written"
            )

    return check
