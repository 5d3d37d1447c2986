"""State views of an operator and their columns, which are those of Spark's own ``statestore`` source.

    rows            key, value                          any store or column family as it is stored
    join-side       key, value                          the buffered rows of one side of a stream-stream join
    list            key, list_element                   a ListState; not flat: list_value, an array
    map             key, user_map_key, user_map_value   a MapState; not flat: map_value, a map
    timers          key, expiration_timestamp_ms        the timers of transformWithState

``partition_id`` comes last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from statestore.formats.spark.checkpoint.checkpoint import DEFAULT_STORE, JOIN_FORM, Checkpoint, Operator, Store
from statestore.formats.spark.checkpoint.schema_files import FamilySchema
from statestore.formats.spark.checkpoint.spark_schema import StructOf, arrow_field, arrow_type
from statestore.formats.spark.checkpoint.state_errors import missing

Shape = Literal["rows", "join-side", "list", "map", "timers"]

PARTITION = pa.field("partition_id", pa.int32())
NUMBER = pa.field("_copy", pa.int64())
"""The number of a row among those of its key, which no schema lists."""

TIMERS = "timers"
_SIDES = ("left", "right")
_BY_INDEX, _BY_TIME = "keyWithIndexToValue", "keyWithTsToValues"
_OF_TIME = "-tsWithKey"  # of join format 4: an entry for each row in the other family
_OF_FUNCTIONS = ("GroupsWithState", "PandasWithState", "transformWithState")  # of names of operators
_GROUP_STATE = "groupState"  # the field of a function's state, where no metadata names the operator
_TIMER_FAMILIES = ("$procTimers_keyToTimestamp", "$eventTimers_keyToTimestamp")
_SHAPES: dict[str, Shape] = {"ListState": "list", "MapState": "map"}


@dataclass(frozen=True)
class StateView:
    """A table of state. ``listed`` values are several rows each; ``key`` and ``value`` are the columns shown.

    ``user`` is true for the state of users, and false for state that Spark keeps for itself.
    """

    operator_id: int
    name: str
    shape: Shape
    store: Store
    family: FamilySchema
    listed: bool
    user: bool
    value: StructOf
    flat: bool = True

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the state view's rows."""
        return pa.schema([*state_fields(self), PARTITION])


def state_views(checkpoint: Checkpoint, operator: Operator) -> tuple[StateView, ...]:
    """All state views of an operator, first those for users."""
    raw = [_raw(store, family) for store in operator.stores for family in store.families]
    sides = [_side(checkpoint, state_view) for state_view in raw if _side_of(state_view.name)]
    variables = [found for state_view in raw if (found := _variable(operator, state_view))]
    named = sides + variables
    _check_variables(checkpoint, operator, raw)
    taken = {state_view.name for state_view in named}
    return (
        *named,
        *(
            replace(state_view, user=state_view.user and not named)
            for state_view in raw
            if state_view.name not in taken
        ),
    )


def _check_variables(checkpoint: Checkpoint, operator: Operator, raw: Sequence[StateView]) -> None:
    """Check that an operator's metadata is there: only it has the kinds of the families of transformWithState."""
    if operator.variables:
        return
    for each in raw:
        name = each.family.name
        own = name == DEFAULT_STORE or name.startswith("$") or name.split("-")[0] in _SIDES
        if each.store.has_families and not own:
            where = checkpoint.root.at("state", operator.operator_id, "_metadata").path
            raise missing(where, f"nothing says what kind of state {name!r} is; restore the folder from a copy")


def find_state_view(
    checkpoint: Checkpoint, operator_id: int, name: str | None = None, *, flat: bool = True
) -> StateView:
    """A state view by its name; by default the only one for users.

    ``flat`` is false for lists and maps as one value per key. Raises NotFoundError SPARK_STATE_NOT_FOUND, stating the
    names.
    """
    found = state_views(checkpoint, checkpoint.operator(operator_id))
    users = [each for each in found if each.user]
    if name is None and len(users) == 1:
        return replace(users[0], flat=flat)
    for each in found:
        if each.name == name:
            return replace(each, flat=flat)
    names = ", ".join(each.name for each in found)
    raise missing(f"state {name or 'without a name'} of operator {operator_id}", f"expected one of {names}")


def state_fields(state_view: StateView) -> list[pa.Field]:
    """The columns of a state view without ``partition_id``."""
    opaque = state_view.family.opaque
    key, value = state_view.family.key, pa.binary() if "value" in opaque else arrow_type(state_view.value)
    if state_view.shape == "list":
        name, kind = (
            ("list_element", value) if state_view.flat else ("list_value", pa.list_(pa.field("element", value)))
        )
        return [pa.field("key", arrow_type(key)), pa.field(name, kind)]
    if state_view.shape == "map":
        first, user_key = arrow_field("key", key.fields[0].type), key.fields[1].type
        if state_view.flat:
            return [first, arrow_field("user_map_key", user_key), pa.field("user_map_value", value)]
        return [first, pa.field("map_value", pa.map_(arrow_field("key", user_key, nullable=False), value))]
    if state_view.shape == "timers":
        return [arrow_field("key", key.fields[0].type), pa.field("expiration_timestamp_ms", pa.int64())]
    shown = key.without("index") if state_view.shape == "join-side" else key
    return [pa.field("key", pa.binary() if "key" in opaque else arrow_type(shown)), pa.field("value", value)]


def row_key(state_view: StateView) -> tuple[str, ...]:
    """The columns in which no two rows of the state view are equal at one time; () where equal rows may repeat."""
    if state_view.shape == "join-side" or (state_view.listed and (state_view.flat or state_view.shape != "list")):
        return ()
    if state_view.shape == "timers":
        return ("key", "expiration_timestamp_ms")
    return ("key", "user_map_key") if state_view.shape == "map" and state_view.flat else ("key",)


def number_within_key(state_view: StateView) -> str | None:
    """The name of the column with the number of each row within its key; None for rows that their key tells apart.

    A join's side of formats 1 to 3 stores the index of each row in its key. Lists, and the rows of a key and a time in
    format 4, are stored in an order.
    """
    return NUMBER.name if not row_key(state_view) else None


def has_one_zero(operator: Operator, state_view: StateView) -> bool:
    """Return whether Spark stores every zero of a key as 0.0, and every NaN as one.

    It does so for keys of aggregations, joins and deduplication, the last since SPARK-56280, and not for those that
    users group by for a function (``NormalizeFloatingNumbers``). Where nothing says which one it is, the answer is
    true, because a filter for both zeros then finds the one that is stored.
    """
    of_function = any(word in (operator.name or "") for word in _OF_FUNCTIONS) or _GROUP_STATE in state_view.value.names
    return not (of_function or operator.variables)


def _raw(store: Store, family: FamilySchema) -> StateView:
    """The state view of a store or family as it is stored. Families and stores are named after themselves."""
    name = family.name if store.has_families else store.name
    # Families of joins and transformWithState are internal to Spark; a single family is the operator's whole state.
    user = name == DEFAULT_STORE
    listed = name.endswith((_BY_TIME, _OF_TIME))
    return StateView(store.operator_id, name, "rows", store, family, listed, user, family.value)


def _side_of(name: str) -> str | None:
    side, _, kind = name.partition("-")
    return side if side in _SIDES and kind in (_BY_INDEX, _BY_TIME) else None


def _side(checkpoint: Checkpoint, raw: StateView) -> StateView:
    """The state view of a side's rows as they came in: without their number and whether they were matched."""
    if "key" in raw.family.opaque:  # as it is stored, with the number of the row in its key
        return replace(raw, name=str(_side_of(raw.name)), user=True)
    fields = raw.family.value.fields
    usual = "2" if raw.family.recorded else "1"
    with_match = raw.name.endswith(_BY_TIME) or checkpoint.batch.setting(JOIN_FORM, usual) != "1"
    value = StructOf(fields[:-1]) if with_match and fields and fields[-1].name == "matched" else raw.family.value
    return replace(raw, name=str(_side_of(raw.name)), shape="join-side", value=value, user=True)


def _variable(operator: Operator, raw: StateView) -> StateView | None:
    """The state view of a variable of transformWithState."""
    if raw.name in _TIMER_FAMILIES:
        return replace(raw, name=TIMERS, shape="timers", user=True)
    kind = operator.variables.get(raw.name)
    if kind is None or raw.name.startswith("$"):
        return None
    return replace(raw, shape=_SHAPES.get(kind, "rows"), listed=kind == "ListState", user=True)
