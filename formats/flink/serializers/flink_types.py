"""The types of Flink's serializers, as trees: what a value is and how its bytes are written.

A tree is read from the serializer snapshots of a file (``serializers``) and turned into Arrow columns (``columns``).
The classes describe bytes, so two Java types that are written alike may have one class here. Source: the serializers of
Flink 1.20 and 2.3, package ``org.apache.flink.api.common.typeutils.base`` where nothing else is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import pyarrow as pa

from statestore.formats.flink.serializers.job_classes import JobClass

VARIABLE = -1
REST_OF_CELL = -1
MOST_DEPTH = 64
"""Levels of a type; deeper ones are refused, as damaged or forged bytes may nest without end."""


class FlinkType:
    """Base of all types."""


@dataclass(frozen=True)
class Basic(FlinkType):
    """A type without parameters, by its name in `BASIC_WIDTHS`.

    ``class_name`` is the Java class of the values where it is not the JDK's: Flink's ``LongValue`` is written like a
    Long, and has another hash code.
    """

    name: str
    class_name: str = ""


VOID = Basic("void")
BASIC_WIDTHS: Mapping[str, int] = {
    "string": VARIABLE,
    "string_value": VARIABLE,
    "utf": VARIABLE,  # as Java's DataOutput.writeUTF; no serializer of Flink writes it, only those of users
    "long": 8,
    "int": 4,
    "short": 2,
    "byte": 1,
    "boolean": 1,
    "float": 4,
    "double": 8,
    "char": 2,
    "biginteger": VARIABLE,
    "bigdecimal": VARIABLE,
    "date": 8,  # java.util.Date
    "sql_date": 8,
    "sql_time": 8,
    "sql_timestamp": 12,
    "local_date": 6,
    "local_time": 7,
    "local_date_time": 13,
    "instant": 12,
    "null_value": 0,
    "void": 1,  # VoidNamespace, GlobalWindow: one byte 0, though the declared length is 0
    "unit": 1,  # Unit of Scala: one byte 0
    "tuple0": 1,  # one byte 42
    "time_window": 16,
}
"""Bytes of each basic type, `VARIABLE` where they differ."""


@dataclass(frozen=True)
class SortedLong(FlinkType):
    """int64 with the sign bit flipped (``SortedLongSerializer`` of the table runtime of Flink 2.x)."""


@dataclass(frozen=True)
class PrimitiveArray(FlinkType):
    """int32 n | n elements; ``element`` is byte, short, int, long, float, double, boolean or char.

    Bytes are one binary value.
    """

    element: str


@dataclass(frozen=True)
class StringArray(FlinkType):
    """int32 n | n strings, each may be null (a string's null is its own: the varint 0)."""


@dataclass(frozen=True)
class ListOf(FlinkType):
    """int32 n | n elements. ``is_set``: a Set of Java, n times: bool null | element unless null (``SetSerializer``)."""

    element: FlinkType
    is_set: bool = False


@dataclass(frozen=True)
class MapOf(FlinkType):
    """int32 n | n times: key | bool null | value unless null."""

    key: FlinkType
    value: FlinkType


@dataclass(frozen=True)
class ArrayOf(FlinkType):
    """A Java array of objects. int32 n | n times: bool present | element if present."""

    element: FlinkType


@dataclass(frozen=True)
class TraversableOf(FlinkType):
    """A collection of Scala. int32 n | n times: bool present | element if present (``TraversableSerializer``).

    ``is_map``: the elements are pairs, of which none is null.
    """

    element: FlinkType
    is_map: bool = False


@dataclass(frozen=True)
class OptionOf(FlinkType):
    """An ``Option`` of Scala. Bool present | value if present (``OptionSerializer``)."""

    value: FlinkType


@dataclass(frozen=True)
class TryOf(FlinkType):
    """A ``Try`` of Scala. Bool success | the value, or what was thrown, written by Kryo (``TrySerializer``)."""

    value: FlinkType
    failure: FlinkType


@dataclass(frozen=True)
class Nullable(FlinkType):
    """Bool null | value unless null; a null is followed by ``padding`` bytes.

    With `REST_OF_CELL`, all bytes behind a null are ignored: for a null value in a map state, RocksDB and savepoints
    have what the value's serializer writes for null, which Flink does not read (``AbstractRocksDBState``,
    ``serializeValueNullSensitive``).
    """

    value: FlinkType
    padding: int = 0


@dataclass(frozen=True)
class TupleOf(FlinkType):
    """The fields in order, none is null. Columns are f0, f1, ... unless a user names them.

    ``class_name`` is the Java class of the values, "" where a snapshot does not say it; ``is_scala``: a case class.
    """

    fields: tuple[FlinkType, ...]
    names: tuple[str, ...] = ()
    class_name: str = ""
    is_scala: bool = False


@dataclass(frozen=True)
class RowOf(FlinkType):
    """``org.apache.flink.types.Row``: a mask of nulls, then the fields that are not null.

    The mask has ceil((n + 2 if kind_bits) / 8) bytes, most significant bit first; the two bits of the row's kind come
    first.
    """

    fields: tuple[FlinkType, ...]
    kind_bits: bool
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class EnumOf(FlinkType):
    """int32 index into ``constants``, or with ``ids`` the number of one of them (an ``Enumeration`` of Scala)."""

    class_name: str
    constants: tuple[str, ...]
    ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class PojoOf(FlinkType):
    """A POJO. Flags: 1 null, 2 plain, 4 unregistered subclass, 8 registered subclass.

    Plain: per field bool null | value unless null. Unregistered: utf class name | a whole value of it, with flags.
    Registered: one byte, the index into ``registered`` | a whole value of it, with flags. ``unregistered`` are the
    subclasses whose snapshots the file has. A subclass that is no POJO is any other type. ``is_declared``: a user says
    which fields it has.
    """

    class_name: str
    fields: tuple[tuple[str, FlinkType], ...]
    registered: tuple[tuple[str, FlinkType], ...] = ()
    unregistered: tuple[tuple[str, FlinkType], ...] = ()
    is_declared: bool = False


@dataclass(frozen=True)
class EitherOf(FlinkType):
    """Bool left | the left or the right value (``JavaEitherSerializer``)."""

    left: FlinkType
    right: FlinkType


@dataclass(frozen=True)
class UnionOf(FlinkType):
    """One byte, the tag of a case | the value of that case. ``cases``: tag, name and type of each.

    Two inputs of a co-group (``CoGroupedStreams.UnionSerializer``), records of windows with an evictor
    (``StreamElementSerializer``). A tag that is not among the cases is an error.
    """

    cases: tuple[tuple[int, str, FlinkType], ...]


@dataclass(frozen=True)
class MaskedListOf(FlinkType):
    """int32 n | ceil(n / 8) bytes, one bit per element, the first the most significant of the first byte, 1 = null |
    the elements that are not null (``LinkedListSerializer`` of the table runtime).
    """

    element: FlinkType


@dataclass(frozen=True)
class TtlOf(FlinkType):
    """int64 time of the last access, epoch milliseconds | value (``TtlStateFactory.TtlSerializer``)."""

    value: FlinkType


@dataclass(frozen=True)
class TimerOf(FlinkType):
    """int64 timestamp, epoch milliseconds, sign bit flipped | key | namespace (``TimerSerializer``)."""

    key: FlinkType
    namespace: FlinkType


@dataclass(frozen=True)
class Logical(FlinkType):
    """A type inside binary data of Flink SQL, or written by a serializer of the table runtime.

    ``root`` is one of BOOLEAN, TINYINT, SMALLINT, INTEGER, BIGINT, FLOAT, DOUBLE, STRING, BYTES, DECIMAL (``precision``
    and ``scale``), DATE, TIME, TIMESTAMP, TIMESTAMP_LTZ (``precision``), YEAR_MONTH, DAY_TIME (intervals), ARRAY
    (``children``: element), MAP (key, value), MULTISET (element; both with the ``names`` `ENTRIES` where a user wants
    them as lists of entries, whose keys may be null), ROW (fields, ``names``), RAW (bytes of another
    serializer, whose type is ``raw`` where the file tells it), VARIANT, BITMAP (bytes), ABSENT (the place of a view,
    such as a ``MapView``, whose content is a state of its own).
    """

    root: str
    precision: int = 0
    scale: int = 0
    children: tuple[Logical, ...] = ()
    names: tuple[str, ...] = ()
    raw: tuple[FlinkType, ...] = ()


MICRO_DIGITS = 6
"""The digits of a second up to which times of SQL are microseconds; with more they are nanoseconds."""
ENTRIES = ("key", "value")
"""Names of the parts of an entry, where a map is shown as a list of its entries."""


@dataclass(frozen=True)
class RowDataOf(FlinkType):
    """int32 size | binary row (``RowDataSerializer``). ``row`` is a `Logical` ROW."""

    row: Logical


@dataclass(frozen=True)
class TableValue(FlinkType):
    """A value written by another serializer of the table runtime: StringData, DecimalData, TimestampData, ArrayData,
    MapData, as ``kind`` says. Their bytes outside of rows differ from those inside.
    """

    kind: Logical


@dataclass(frozen=True)
class RawOf(FlinkType):
    """int32 n | a value of n bytes, by a serializer that is not one of SQL's (``RawValueDataSerializer``)."""

    value: FlinkType


@dataclass(frozen=True)
class AvroOf(FlinkType):
    """A value of ``AvroSerializer``, written by Flink's ``DataOutputEncoder``, which is not Avro's own binary encoding.

    ``schema`` is the writer's schema as JSON.
    """

    class_name: str
    schema: str


@dataclass(frozen=True)
class Opaque(FlinkType):
    """Bytes that only the user's classes decode, and whose end only a frame around them shows.

    ``serializer`` is the class of the serializer, or of its snapshot where it is not one of Flink's; "" where a field
    has none. ``class_name`` is that of the values, or "". ``declared`` is the type that a user gave for it; None: the
    value is shown as binary. ``remedy`` is the option that may help, "" where none is known.
    """

    serializer: str
    class_name: str = ""
    declared: pa.DataType | None = None
    remedy: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class KryoOf(Opaque):
    """A value of ``KryoSerializer``, which tells its own class: it is read where the form of that class is public.

    ``registrations`` are the classes that are registered, and whether a job gave a serializer for each. ``is_old``:
    Kryo 2, that of Flink 1.x. ``column`` is the type in which all values are shown; None: as texts of JSON. ``place``
    tells the parts of a type apart whose columns are looked for. ``classes`` are those of the job that a user
    declares. ``has_defaults``: the job gave serializers for all subclasses of some classes. ``is_scala``: the job has
    Flink's Scala API, whose serializers Kryo uses for collections of Scala.
    """

    registrations: tuple[tuple[str, bool], ...] = ()
    is_old: bool = True
    column: pa.DataType | None = None
    place: int = -1
    classes: tuple[JobClass, ...] = ()
    has_defaults: bool = False
    is_scala: bool = False


@dataclass(frozen=True)
class RestOf(Opaque):
    """The bytes of a POJO or tuple from a field on that cannot be decoded, with all fields behind it.

    In a POJO the first byte says whether that field is null.
    """


@dataclass(frozen=True)
class SubclassBytes(Opaque):
    """The bytes of a value of a subclass of a POJO, which a user declares as such; ``class_name`` is the subclass."""


@dataclass(frozen=True)
class Shown(FlinkType):
    """The bytes of ``value``, in a column of another type that a user chose: text for a time whose values may not fit
    a timestamp (as Java's ``toString`` writes it), a decimal for a number that is text otherwise.
    """

    value: FlinkType
    column: pa.DataType


# Values of PyFlink: its operators keep the bytes of its coders in states of byte arrays


@dataclass(frozen=True)
class PythonBytes(FlinkType):
    """int32 n | n bytes that a coder of PyFlink wrote. No file says which one; shown as binary."""


@dataclass(frozen=True)
class PythonValue(FlinkType):
    """int32 n | one value of n bytes, as the coder of PyFlink writes it."""

    value: FlinkType


@dataclass(frozen=True)
class PythonElements(FlinkType):
    """int32 n | elements one after another, up to the end of the n bytes: what one bundle has added to a state."""

    element: FlinkType


@dataclass(frozen=True)
class PythonLeaf(FlinkType):
    """A value of a coder of PyFlink that no serializer of Java writes.

    ``name`` is date (int32 days), time (int32 milliseconds), decimal (int32 n | its digits as text), pickle (int32 n |
    n bytes, never unpickled), or plain_text (int32 n | UTF-8, at least one character, none of control).
    """

    name: str
    column: pa.DataType


# Types that only occur in the keys and values of states, where a frame shows the end


@dataclass(frozen=True)
class Joined(FlinkType):
    """The elements of a list state in canonical savepoints and RocksDB: one or more, a byte ``2C`` between two."""

    element: FlinkType


@dataclass(frozen=True)
class LengthOf(FlinkType):
    """The length of the value before, which keys have where they would be ambiguous: in the fewest bytes, at least one,
    low byte first. It holds no column; a length that differs from the value's is an error.
    """


@dataclass(frozen=True)
class Prefix(FlinkType):
    """The key group at the start of a stored key, ``width`` bytes (1 or 2), big-endian. A column of int32."""

    width: int


@dataclass(frozen=True)
class SpanOf(FlinkType):
    """The bytes of a value as they are, in a column of binary."""

    value: FlinkType


def fixed_width(kind: FlinkType) -> int:
    """The length that Flink's serializer declares (``TypeSerializer.getLength``), `VARIABLE` if there is none.

    A stored key has lengths in it if those of the key and of the namespace are both variable.
    """
    if isinstance(kind, Basic):
        return 0 if kind.name == "void" else BASIC_WIDTHS[kind.name]
    if isinstance(kind, TupleOf):
        widths = [1 if each == VOID else fixed_width(each) for each in kind.fields]  # of type Void
        return VARIABLE if min(widths, default=0) <= 0 else sum(widths)  # as `TupleSerializerBase.getLength`
    if isinstance(kind, EnumOf):
        return 4
    if isinstance(kind, SortedLong):
        return 8
    if isinstance(kind, Shown):
        return fixed_width(kind.value)
    if isinstance(kind, Nullable):
        inner = fixed_width(kind.value)
        return VARIABLE if inner == VARIABLE or not kind.padding else inner + 1
    if isinstance(kind, TtlOf):
        inner = fixed_width(kind.value)
        return VARIABLE if inner == VARIABLE else inner + 8
    if isinstance(kind, TableValue) and kind.kind.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return 8 if kind.kind.precision <= 3 else 12
    return VARIABLE


def is_absent(kind: Logical) -> bool:
    """Whether a type of a row's field stands for no value: a view, or a row of nothing but views."""
    return kind.root == "ABSENT" or (kind.root == "ROW" and bool(kind.children) and all(map(is_absent, kind.children)))


def children(kind: FlinkType) -> tuple[FlinkType, ...]:
    """The types that every value of a type may contain, without subclasses of a POJO."""
    if isinstance(kind, (ListOf, MaskedListOf, ArrayOf, TraversableOf, Joined, PythonElements)):
        return (kind.element,)
    if isinstance(kind, (Nullable, OptionOf, TtlOf, Shown, SpanOf, PythonValue)):
        return (kind.value,)
    if isinstance(kind, TryOf):
        return kind.value, kind.failure
    if isinstance(kind, MapOf):
        return kind.key, kind.value
    if isinstance(kind, TimerOf):
        return kind.key, kind.namespace
    if isinstance(kind, EitherOf):
        return kind.left, kind.right
    if isinstance(kind, (TupleOf, RowOf)):
        return kind.fields
    if isinstance(kind, PojoOf):
        return tuple(each for _, each in kind.fields)
    if isinstance(kind, UnionOf):
        return tuple(each for _, _, each in kind.cases)
    return ()


def replaced(found: Any, change: Callable[[FlinkType], FlinkType]) -> Any:
    """A type, or a dataclass that holds types, with each of its types changed, those inside of others first."""
    if isinstance(found, tuple):
        return tuple(replaced(each, change) for each in found)
    if not is_dataclass(found) or isinstance(found, type):
        return found
    parts = {each.name: getattr(found, each.name) for each in fields(found)}
    new = {name: replaced(value, change) for name, value in parts.items()}
    changed: Any = found if new == parts else replace(found, **new)
    return change(changed) if isinstance(changed, FlinkType) else changed
