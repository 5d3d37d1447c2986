"""The columns of a keyed state, and which types its stored keys and values have.

    key, namespace             of every state; no namespace where it is void
    value                      value, reducing and aggregating state (of the last the accumulator)
    position, value            list state, a row for each element
    map_key, map_value         map state, a row for each entry
    timestamp, timestamp_ms    timers: a timestamp, null where it does not fit, and epoch milliseconds
    last_access                states with a time to live
    key_group, stored_bytes    where the row is stored, and the bytes of its stored entry

Void values have no column: a map state to ``Void`` is a set, and has ``map_key`` alone.
``stored_bytes`` counts key and value. Of the elements of one stored list, and of the entries of a map in a heap
snapshot, the first has the bytes of all and the others 0. It is null for timers in raw keyed state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.flink.layouts.type_layouts import arrow_field, arrow_type, has_column
from statestore.formats.flink.serializers.backend_header import KeyedStateHeader, StateKind
from statestore.formats.flink.serializers.declared import with_declared
from statestore.formats.flink.serializers.flink_types import (
    VARIABLE,
    VOID,
    FlinkType,
    ListOf,
    MapOf,
    MaskedListOf,
    Opaque,
    PrimitiveArray,
    PythonBytes,
    PythonElements,
    PythonValue,
    TimerOf,
    TtlOf,
    fixed_width,
)
from statestore.formats.flink.serializers.opaque_parts import cut_where_opaque, opaque_inside, opaque_part
from statestore.formats.flink.serializers.python_types import DEFAULT_MAP_KEY, of_state, python_entry
from statestore.formats.flink.serializers.subclasses import Subclass, with_bytes
from statestore.formats.flink.serializers.type_names import shown

KEY, NAMESPACE, VALUE, POSITION = "key", "namespace", "value", "position"
MAP_KEY, MAP_VALUE = "map_key", "map_value"
TIMESTAMP, TIMESTAMP_MS, LAST_ACCESS = "timestamp", "timestamp_ms", "last_access"
KEY_GROUP, STORED_BYTES = "key_group", "stored_bytes"
PLACEMENT = (KEY_GROUP, STORED_BYTES)
DECLARABLE = (KEY, NAMESPACE, VALUE, MAP_KEY, MAP_VALUE)
MICROS = pa.timestamp("us", "UTC")
BINARY = "binary"
SINGLE: tuple[StateKind, ...] = ("value", "reducing", "aggregating", "unknown")


@dataclass(frozen=True)
class KeyedForm:
    """A keyed state: its types as they are shown.

    ``element`` is the type of a value, of an element of a list, or of a map's values, without the time to live;
    ``stored`` is that of the whole value in heap snapshots. ``ambiguous``: stored keys have lengths in them.
    ``undivided``: keys cannot be told from what follows them in stored keys, so ``key`` is all of it as bytes.
    ``whole``: lists are not divided into elements, because these cannot be decoded. ``packed``: what is stored as an
    element of a list has several elements, as `PythonElements`.
    """

    name: str
    kind: StateKind
    key: FlinkType
    namespace: FlinkType
    element: FlinkType
    stored: FlinkType
    map_key: FlinkType | None = None
    has_ttl: bool = False
    ambiguous: bool = False
    undivided: bool = False
    whole: bool = False
    packed: bool = False

    @property
    def has_namespace(self) -> bool:
        return self.namespace != VOID and not self.undivided

    @property
    def has_value(self) -> bool:
        """Whether the state has a column ``value`` or ``map_value``."""
        return self.kind != "timers" and has_column(self.element)

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that tell the rows of the state apart."""
        parts = [KEY, *([NAMESPACE] if self.has_namespace else [])]
        if self.kind == "list" and not self.whole:
            parts.append(POSITION)
        if self.map_key is not None and not self.undivided:
            parts.append(MAP_KEY)
        if self.kind == "timers" and not self.undivided:
            parts.append(TIMESTAMP_MS)
        return tuple(parts)

    @property
    def schema(self) -> pa.Schema:
        """All columns of the state."""
        fields = [arrow_field(KEY, self.key)]
        if self.has_namespace:
            fields.append(arrow_field(NAMESPACE, self.namespace))
        if self.kind == "timers":
            fields += [pa.field(TIMESTAMP, MICROS), pa.field(TIMESTAMP_MS, pa.int64())]
        elif self.kind == "map":
            if self.map_key is not None and not self.undivided:
                fields.append(arrow_field(MAP_KEY, self.map_key))
        elif self.kind == "list" and not self.whole:
            fields.append(pa.field(POSITION, pa.int32()))
        if self.has_value:
            fields.append(arrow_field(MAP_VALUE if self.kind == "map" else VALUE, self.element))
        if self.has_ttl:
            fields.append(pa.field(LAST_ACCESS, MICROS))
        return pa.schema([*fields, pa.field(KEY_GROUP, pa.int32()), pa.field(STORED_BYTES, pa.int32())])


@dataclass(frozen=True)
class Typed:
    """The types that a user gave for a state, by column; ``where`` names the state in errors.

    ``subclasses`` are those of POJOs that a file does not describe.
    """

    declared: Mapping[str, str]
    where: str
    subclasses: Sequence[Subclass] = ()

    def of(self, column: str, kind: FlinkType) -> FlinkType:
        """The type of a column with the user's type for it. Raises InvalidInputError FLINK_TYPE."""
        text = self.declared.get(column)
        if text is None:
            return kind
        if text == BINARY and not isinstance(kind, Opaque | PrimitiveArray | PythonBytes):
            return Opaque("", shown(kind))  # bytes as they are stored, of any type
        try:
            return with_declared(kind, text)
        except InvalidInputError as error:
            raise InvalidInputError(ErrorCode.FLINK_TYPE, f"{self.where}, column {column}: {error.message}") from error

    def entry(self, key: FlinkType, value: FlinkType) -> tuple[FlinkType, FlinkType]:
        """The types of the keys and values of a map. Raises as `of`.

        In a state of PyFlink, a type that is a map and given for no column is that of both, and keys are text where
        only values have a type.
        """
        if not isinstance(key, PythonBytes) or not isinstance(value, PythonBytes) or MAP_KEY in self.declared:
            return self.of(MAP_KEY, key), self.of(MAP_VALUE, value)
        whole = self.declared.get("")
        try:
            both = None if whole is None else python_entry(whole)
        except InvalidInputError as error:
            raise InvalidInputError(ErrorCode.FLINK_TYPE, f"{self.where}: {error.message}") from error
        if both is not None:
            return both
        return DEFAULT_MAP_KEY if MAP_VALUE in self.declared else key, self.of(MAP_VALUE, value)


def form_of(header: KeyedStateHeader, key: FlinkType, typed: Typed) -> KeyedForm:
    """The form of a state. Raises InvalidInputError FLINK_TYPE."""
    ambiguous = fixed_width(key) == VARIABLE and fixed_width(header.namespace) == VARIABLE
    namespace = header.namespace
    if header.kind == "timers":
        stored = header.value
        if isinstance(stored, TimerOf):
            key, namespace = stored.key, stored.namespace
        shown_key, shown_namespace = typed.of(KEY, key), typed.of(NAMESPACE, namespace)
        form = KeyedForm(header.name, "timers", shown_key, shown_namespace, VOID, TimerOf(shown_key, shown_namespace))
        return _divided(replace(form, ambiguous=False))
    map_key: FlinkType | None = None
    element, stored = header.value, header.value
    if header.kind == "list" and isinstance(element, ListOf | MaskedListOf):
        element = element.element
    elif header.kind == "map" and isinstance(element, MapOf):
        map_key, element = of_state(header.name, element.key), element.value
    has_ttl = isinstance(element, TtlOf)
    if isinstance(element, TtlOf):
        element = element.value
    element = of_state(header.name, element)
    if map_key is None:
        element = typed.of(VALUE, element)
    else:
        map_key, element = typed.entry(map_key, element)
    packed = header.kind == "list" and isinstance(element, PythonValue)
    if packed and isinstance(element, PythonValue):
        element = element.value
    element = (
        or_opaque(element, inside=True)
        if header.kind == "list"
        else with_bytes(cut_where_opaque(element), typed.subclasses)
    )
    within: FlinkType = PythonElements(element) if packed else element
    within = TtlOf(within) if has_ttl else within
    if header.kind == "list" and isinstance(stored, ListOf | MaskedListOf):
        stored = replace(stored, element=within)
    elif map_key is not None:
        stored = MapOf(map_key, within)
    else:
        stored = within
    whole = header.kind == "list" and (not isinstance(stored, ListOf | MaskedListOf) or is_opaque(element))
    form = KeyedForm(
        header.name,
        header.kind,
        typed.of(KEY, key),
        typed.of(NAMESPACE, namespace),
        or_opaque(element),
        stored,
        None if map_key is None else or_opaque(map_key),
        has_ttl and not is_opaque(element),
        ambiguous,
        whole=whole,
        packed=packed,
    )
    return _divided(form)


def assumption(map_key: FlinkType | None) -> str:
    """How keys of a map are read without a type that says so, for errors; "" where there is no such one."""
    return ", whose map_key is read as string, as no type is given for it" if map_key == DEFAULT_MAP_KEY else ""


def is_opaque(kind: FlinkType, inside: bool = False) -> bool:
    """Return whether values of a type can only be shown as bytes; ``inside``: where other bytes may follow them."""
    if (opaque_inside(kind) if inside else opaque_part(kind)) is not None:
        return True
    try:
        arrow_type(kind)
    except UnsupportedError:
        return True
    return False


def or_opaque(kind: FlinkType, inside: bool = False) -> FlinkType:
    """The type, or `Opaque` bytes if it cannot be decoded; ``inside``: where other bytes may follow them."""
    if isinstance(kind, Opaque) or not is_opaque(kind, inside):
        return kind
    part = opaque_inside(kind) if inside else opaque_part(kind)
    if part is None:
        return Opaque("", shown(kind))
    return Opaque(part.serializer, part.class_name, remedy=part.remedy)


def _divided(form: KeyedForm) -> KeyedForm:
    """The form of stored keys whose key or namespace cannot be decoded.

    A key is still what precedes a namespace of fixed length, where nothing follows.
    """
    key, namespace = or_opaque(form.key), or_opaque(form.namespace)
    width = fixed_width(namespace)
    last = form.map_key is None and form.kind != "timers"
    undivided = is_opaque(namespace) or (is_opaque(key) and not (last and width != VARIABLE))
    if undivided:
        return replace(form, key=key if is_opaque(key) else Opaque("", shown(form.key)), undivided=True)
    return replace(form, key=key, namespace=namespace)
