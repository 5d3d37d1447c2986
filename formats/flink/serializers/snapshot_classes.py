"""Snapshot classes of Flink 1.20 and 2.3 that need no reader of their own, by name.

Source: all classes of both versions that extend ``SimpleTypeSerializerSnapshot`` or ``CompositeTypeSerializerSnapshot``
without outer data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from statestore.formats.flink.serializers.flink_types import (
    VOID,
    ArrayOf,
    Basic,
    EitherOf,
    FlinkType,
    ListOf,
    Logical,
    MapOf,
    Nullable,
    Opaque,
    OptionOf,
    PrimitiveArray,
    RawOf,
    SortedLong,
    StringArray,
    TableValue,
    TimerOf,
    TryOf,
    TtlOf,
    TupleOf,
    UnionOf,
)

BASE = "org.apache.flink.api.common.typeutils.base."
RUNTIME = "org.apache.flink.api.java.typeutils.runtime."
STATE = "org.apache.flink.runtime.state."
STREAMING = "org.apache.flink.streaming."
TABLE = "org.apache.flink.table."
TYPEUTILS = f"{TABLE}runtime.typeutils."
PYTHON = f"{TYPEUTILS}serializers.python."
CEP = "org.apache.flink.cep.nfa."
SINK = f"{STREAMING}api.functions.sink."
SCALA = "org.apache.flink.api.scala.typeutils."
VALUES = "org.apache.flink.types."

_BYTES = PrimitiveArray("byte")


def _named(prefix: str, kinds: Mapping[str, FlinkType]) -> dict[str, FlinkType]:
    """Each serializer's snapshot class, which is nested in the serializer."""
    return {f"{prefix}{name}Serializer${name}SerializerSnapshot": kind for name, kind in kinds.items()}


def _windows(package: str, kinds: Mapping[str, FlinkType]) -> dict[str, FlinkType]:
    return {f"{package}{name}$Serializer${name}SerializerSnapshot": kind for name, kind in kinds.items()}


def _opaque(*names: str) -> dict[str, FlinkType]:
    return {name: Opaque(name.partition("$")[0].removesuffix("Snapshot")) for name in names}


SIMPLE: Mapping[str, FlinkType] = {
    **_named(
        BASE,
        {
            "BigDec": Basic("bigdecimal"),
            "BigInt": Basic("biginteger"),
            "Bitmap": _BYTES,
            "Boolean": Basic("boolean"),
            "Byte": Basic("byte"),
            "Char": Basic("char"),
            "Date": Basic("date"),
            "Double": Basic("double"),
            "Float": Basic("float"),
            "Instant": Basic("instant"),
            "Int": Basic("int"),
            "LocalDate": Basic("local_date"),
            "LocalDateTime": Basic("local_date_time"),
            "LocalTime": Basic("local_time"),
            "Long": Basic("long"),
            "Short": Basic("short"),
            "SqlDate": Basic("sql_date"),
            "SqlTime": Basic("sql_time"),
            "SqlTimestamp": Basic("sql_timestamp"),
            "String": Basic("string"),
            "Variant": TableValue(Logical("VARIANT")),
            "Void": VOID,
        },
    ),
    **_named(
        BASE,
        {
            f"{name}Value": Basic(name.lower(), f"{VALUES}{name}Value")
            for name in ("Boolean", "Byte", "Char", "Double", "Float", "Int", "Long", "Short")
        },
    ),
    **_named(
        BASE,
        {
            "NullValue": Basic("null_value", f"{VALUES}NullValue"),
            "StringValue": Basic("string_value", f"{VALUES}StringValue"),
        },
    ),
    **_named(
        f"{BASE}array.",
        {
            f"{name}PrimitiveArray": PrimitiveArray(name.lower())
            for name in ("Boolean", "Byte", "Char", "Double", "Float", "Int", "Long", "Short")
        },
    ),
    **_named(f"{BASE}array.", {"StringArray": StringArray()}),
    **_named(STATE, {"VoidNamespace": VOID}),
    **_named(f"{STREAMING}api.utils.", {"ByteArrayWrapper": _BYTES}),
    **_windows(
        f"{STREAMING}api.windowing.windows.",
        {"TimeWindow": Basic("time_window"), "GlobalWindow": VOID},
    ),
    **_windows(
        f"{TABLE}runtime.operators.window.",
        {
            "TimeWindow": Basic("time_window"),
            "CountWindow": Basic("long", f"{TABLE}runtime.operators.window.CountWindow"),
            "GlobalWindow": VOID,
        },
    ),
    **_named(f"{TABLE}dataview.", {"Null": VOID}),
    **_named(f"{TABLE}runtime.operators.sink.", {"SortedLong": SortedLong()}),
    f"{RUNTIME}Tuple0SerializerSnapshot": Basic("tuple0"),
    f"{SCALA}UnitSerializer$UnitSerializerSnapshot": Basic("unit"),
    **_named(TYPEUTILS, {"StringData": TableValue(Logical("STRING"))}),
    f"{CEP}sharedbuffer.EventId$EventIdSerializer$EventIdSerializerSnapshot": TupleOf(
        (Basic("int"), Basic("long")), ("id", "timestamp")
    ),
    f"{CEP}DeweyNumber$DeweyNumberSerializer$DeweyNumberSerializerSnapshot": PrimitiveArray("int"),
    **_opaque(
        f"{STATE}JavaSerializer$JavaSerializerSnapshot",
        f"{PYTHON}BigDecSerializer$BigDecSerializerSnapshot",
        f"{PYTHON}DateSerializer$DateSerializerSnapshot",
        f"{PYTHON}StringSerializer$StringSerializerSnapshot",
        f"{PYTHON}TimeSerializer$TimeSerializerSnapshot",
        f"{SCALA}NothingSerializerSnapshot",
    ),
}
"""Classes without a body, and the type of each."""

Nested = tuple[FlinkType, ...]
Composite = tuple[int, int, Callable[[Nested], FlinkType]]


def _first(nested: Nested) -> FlinkType:
    return nested[0]


def _named_tuple(*names: str) -> Callable[[Nested], FlinkType]:
    return lambda nested: TupleOf(nested, names)


_RECORD = (0, "with_timestamp"), (1, "without_timestamp")
_WATERMARK = (2, "watermark", Basic("long"))


def _stream_element(nested: Nested) -> FlinkType:
    """A record of a stream. State holds no other elements, but in tuples, see `in_tuple`."""
    timed = TupleOf((Basic("long"), nested[0]), ("timestamp", "value"))
    return UnionOf(tuple((*tag, kind) for tag, kind in zip(_RECORD, (timed, nested[0]), strict=True)))


def in_tuple(kind: FlinkType) -> FlinkType:
    """The type of a tuple's field. An element of a stream may be a watermark there.

    SQL's lookup joins that keep the order of a key, and delta joins, hold a record that waits for its answer together
    with the watermark before it (``TableKeyedAsyncWaitOperator``, ``StreamingDeltaJoinOperator``).
    """
    if isinstance(kind, UnionOf) and tuple(case[:2] for case in kind.cases) == _RECORD:
        return UnionOf((*kind.cases, _WATERMARK))
    return kind


COMPOSITE: Mapping[str, Composite] = {
    f"{BASE}ListSerializerSnapshot": (1, 1, lambda nested: ListOf(nested[0])),
    f"{BASE}SetSerializerSnapshot": (1, 1, lambda nested: ListOf(nested[0], is_set=True)),
    f"{BASE}MapSerializerSnapshot": (1, 2, lambda nested: MapOf(*nested)),
    f"{STATE}ArrayListSerializerSnapshot": (1, 1, lambda nested: ListOf(nested[0])),
    f"{STATE}ttl.TtlStateFactory$TtlSerializerSnapshot": (2, 2, lambda nested: TtlOf(nested[1])),
    f"{STATE}v2.ttl.TtlStateFactory$TtlSerializerSnapshot": (2, 2, lambda nested: TtlOf(nested[1])),
    f"{STREAMING}api.operators.TimerSerializerSnapshot": (2, 2, lambda nested: TimerOf(*nested)),
    f"{RUNTIME}JavaEitherSerializerSnapshot": (1, 2, lambda nested: EitherOf(*nested)),
    f"{STREAMING}runtime.streamrecord.StreamElementSerializer$StreamElementSerializerSnapshot": (2, 1, _stream_element),
    f"{STREAMING}api.operators.co.IntervalJoinOperator$BufferEntrySerializerSnapshot": (
        2,
        1,
        lambda nested: TupleOf((Basic("boolean"), nested[0]), ("has_been_joined", "element")),
    ),
    f"{STREAMING}api.datastream.CoGroupedStreams$UnionSerializerSnapshot": (
        2,
        2,
        lambda nested: UnionOf(((1, "one", nested[0]), (2, "two", nested[1]))),
    ),
    "org.apache.flink.api.common.typeutils.SingleThreadAccessCheckingTypeSerializer"
    "$SingleThreadAccessCheckingTypeSerializerSnapshot": (1, 1, _first),
    f"{TABLE}dataview.ListViewSerializerSnapshot": (1, 1, _first),
    f"{TABLE}dataview.MapViewSerializerSnapshot": (1, 1, _first),
    f"{TABLE}dataview.NullAwareMapSerializerSnapshot": (1, 2, lambda nested: MapOf(Nullable(nested[0]), nested[1])),
    f"{TYPEUTILS}RawValueDataSerializer$RawValueDataSerializerSnapshot": (0, 1, lambda nested: RawOf(nested[0])),
    f"{TYPEUTILS}WindowKeySerializer$WindowKeySerializerSnapshot": (
        1,
        1,
        lambda nested: TupleOf((Basic("long"), nested[0]), ("window", "key")),
    ),
    f"{TABLE}runtime.sequencedmultisetstate.linked.MetaSqnInfoSerializer$MetaSqnInfoSerializerSnapshot": (
        0,
        2,
        _named_tuple("high_sqn", "size"),
    ),
    f"{TABLE}runtime.sequencedmultisetstate.linked.RowSqnInfoSerializer$RowSqnInfoSerializerSnapshot": (
        0,
        2,
        _named_tuple("first_sqn", "last_sqn"),
    ),
    f"{TABLE}runtime.sequencedmultisetstate.linked.NodeSerializer$NodeSerializerSnapshot": (
        0,
        6,
        _named_tuple("row", "sqn", "prev_sqn", "next_sqn", "next_sqn_for_record", "timestamp"),
    ),
    f"{CEP}sharedbuffer.LockableTypeSerializerSnapshot": (
        1,
        1,
        lambda nested: TupleOf((Basic("int"), nested[0]), ("references", "element")),
    ),
    f"{SCALA}ScalaEitherSerializerSnapshot": (1, 2, lambda nested: EitherOf(*nested)),
    f"{SCALA}ScalaOptionSerializerSnapshot": (2, 1, lambda nested: OptionOf(nested[0])),
    f"{SCALA}ScalaTrySerializerSnapshot": (2, 2, lambda nested: TryOf(*nested)),
    f"{CEP}sharedbuffer.NodeId$NodeIdSerializer$NodeIdSerializerSnapshot": (
        1,
        1,
        lambda nested: OptionOf(TupleOf((nested[0], Basic("string")), ("event_id", "page"))),
    ),
    f"{CEP}sharedbuffer.SharedBufferEdge$SharedBufferEdgeSerializer$SharedBufferEdgeSerializerSnapshot": (
        1,
        2,
        lambda nested: TupleOf(nested, ("target", "version"), f"{CEP}sharedbuffer.SharedBufferEdge"),
    ),
    f"{CEP}sharedbuffer.SharedBufferNodeSerializerSnapshotV2": (
        1,
        1,
        lambda nested: ListOf(
            TupleOf((Basic("int"), nested[0]), ("references", "edge"), f"{CEP}sharedbuffer.Lockable")
        ),
    ),
    # The list of edges that Flink wrote before it counted their references; Flink 2 reads it no more.
    f"{CEP}sharedbuffer.SharedBufferNode$SharedBufferNodeSerializer$SharedBufferNodeSerializerSnapshot": (1, 1, _first),
}
"""Composite classes without outer data: newest version of that part, number of nested serializers, and the type."""

LEGACY_COMPOSITE: Mapping[str, Callable[[Nested], FlinkType]] = {
    f"{RUNTIME}EitherSerializerSnapshot": lambda nested: EitherOf(*nested),
    f"{BASE}GenericArraySerializerConfigSnapshot": lambda nested: ArrayOf(nested[0]),
}
"""Classes that only Flink 1.x reads, all in version 2 (the array's has the element's class before the nested ones)."""
