"""The classes whose form in Kryo is public, by version of Kryo and as Flink registers them, for the walk over objects.

Source: the default serializers of Kryo 2.24 (Flink 1.x) and 5.6 (Flink 2.x), and ``FlinkChillPackageRegistrar`` of
Flink, which gives the numbers 73 to 84 to some classes; those that a job registers follow from 85 on. With Flink's
Scala API classes of Scala have the numbers before, see ``kryo_scala``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from statestore.formats.flink.layouts import kryo_scala as scala
from statestore.formats.flink.layouts.kryo_objects import ObjectFields, ObjectForms
from statestore.formats.flink.layouts.kryo_scala import Form as _Form
from statestore.formats.flink.serializers.job_classes import JobClass
from statestore.formats.kernels import kryo_forms as forms
from statestore.formats.kernels.arrays import Bytes, Ints

CONSTANTS: tuple[tuple[str, ...], ...] = (
    ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY"),
    (
        "JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE", "JULY", "AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER",
        "DECEMBER",
    ),
    ("NANOSECONDS", "MICROSECONDS", "MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS"),
    (
        "NANOS", "MICROS", "MILLIS", "SECONDS", "MINUTES", "HOURS", "HALF_DAYS", "DAYS", "WEEKS", "MONTHS", "YEARS",
        "DECADES", "CENTURIES", "MILLENNIA", "ERAS", "FOREVER",
    ),
    ("UP", "DOWN", "CEILING", "FLOOR", "HALF_UP", "HALF_DOWN", "HALF_EVEN", "UNNECESSARY"),
    ("INSTANCE",),
    ("left", "right"),
)  # fmt: skip
"""The constants of the JDK's enums, which Kryo writes as numbers, and last the names of the sides of Scala's Either.

Those of other enums are code of a job.
"""

FIRST_OF_FLINK, FIRST_OF_JOB = 73, 85
Enums = tuple[tuple[str, tuple[str, ...]], ...]
"""Classes of a job's enums and their constants in order. Their numbers follow those of `CONSTANTS`."""


def enums_of(classes: tuple[JobClass, ...]) -> Enums:
    """The enums among classes of a job."""
    return tuple((each.name, each.constants) for each in classes if each.constants is not None)


@dataclass(frozen=True)
class KryoForms:
    """The forms that a serializer of Flink knows, as arrays for ``kryo_walk.walk_object``.

    ``is_old``: Kryo 2. ``registered`` has the form of each number, ``name_forms`` that of each name, in order.
    ``objects`` are the job's classes by the numbers of their forms.
    """

    is_old: bool
    forms: npt.NDArray[np.int64]
    registered: Ints
    names: Bytes
    name_ends: Ints
    name_forms: Ints
    objects: tuple[ObjectFields, ...] = ()


def _plain(kind: int, number: int = 0) -> _Form:
    return kind, 0, number, 0


def _tracked(kind: int, number: int = 0) -> _Form:
    return kind, 1, number, 0


_PRIMITIVES: Mapping[str, int] = {
    "int": forms.INT,
    "float": forms.FLOAT,
    "boolean": forms.BOOL,
    "byte": forms.BYTE,
    "char": forms.CHAR,
    "short": forms.SHORT_FORM,
    "long": forms.LONG,
    "double": forms.DOUBLE,
}
_FIRST_NUMBERS = ("int", "java.lang.String", "float", "boolean", "byte", "char", "short", "long", "double")
_LISTS = (
    "ArrayList", "LinkedList", "Vector", "Stack", "ArrayDeque", "HashSet", "LinkedHashSet",
    "concurrent.CopyOnWriteArrayList", "concurrent.ConcurrentLinkedQueue", "concurrent.ConcurrentLinkedDeque",
    "concurrent.LinkedBlockingQueue", "concurrent.LinkedBlockingDeque", "concurrent.PriorityBlockingQueue",
    "concurrent.ArrayBlockingQueue", "concurrent.ConcurrentSkipListSet", "concurrent.CopyOnWriteArraySet",
    "concurrent.ConcurrentHashMap$KeySetView", "concurrent.LinkedTransferQueue", "concurrent.DelayQueue",
)  # fmt: skip
_VIEWS = (
    "Collections$UnmodifiableCollection", "Collections$UnmodifiableList", "Collections$UnmodifiableRandomAccessList",
    "Collections$UnmodifiableSet", "Collections$UnmodifiableSequencedSet",
    "Collections$UnmodifiableSequencedCollection",
    "Collections$SynchronizedCollection", "Collections$SynchronizedList", "Collections$SynchronizedRandomAccessList",
    "Collections$SynchronizedSet", "HashMap$KeySet", "HashMap$Values", "HashMap$EntrySet", "ArrayList$SubList",
    "LinkedHashMap$LinkedKeySet", "LinkedHashMap$LinkedValues", "TreeMap$KeySet", "AbstractList$SubList",
    "AbstractList$RandomAccessSubList", "Collections$CopiesList", "Collections$SetFromMap", "TreeMap$Values",
    "Collections$UnmodifiableSortedSet", "Collections$UnmodifiableNavigableSet",
    "Collections$UnmodifiableNavigableSet$EmptyNavigableSet", "Collections$SynchronizedSortedSet",
    "Collections$SynchronizedNavigableSet", "Collections$CheckedCollection", "Collections$CheckedList",
    "Collections$CheckedRandomAccessList", "Collections$CheckedSet",
)  # fmt: skip
"""Collections that Kryo writes and does not read again, in Flink: their bytes are those of all others."""
_MAPS = ("HashMap", "LinkedHashMap", "Hashtable", "WeakHashMap", "IdentityHashMap", "concurrent.ConcurrentHashMap",
         "EnumMap", "Properties")  # fmt: skip
_MAP_VIEWS = (
    "Collections$UnmodifiableMap", "Collections$SynchronizedMap", "Collections$UnmodifiableSortedMap",
    "Collections$UnmodifiableNavigableMap", "Collections$UnmodifiableNavigableMap$EmptyNavigableMap",
    "Collections$SynchronizedSortedMap", "Collections$SynchronizedNavigableMap", "Collections$CheckedMap",
    "TreeMap$AscendingSubMap", "TreeMap$DescendingSubMap",
)  # fmt: skip
_IMMUTABLE_LISTS = ("ListN", "List12", "SubList", "SetN", "Set12")
_COMPARATORS = ("java.util.Collections$ReverseComparator", "java.lang.String$CaseInsensitiveComparator")
_CALENDARS = ("java.util.GregorianCalendar", "java.util.JapaneseImperialCalendar", "sun.util.BuddhistCalendar")
_ENTRIES = ("AbstractMap$SimpleEntry", "AbstractMap$SimpleImmutableEntry", "KeyValueHolder")
_CHARSETS = ("US_ASCII", "ISO_8859_1", "UTF_8", "UTF_16", "UTF_16BE", "UTF_16LE", "UTF_32", "UTF_32BE", "UTF_32LE",
             "ISO_8859_15", "MS1250", "MS1251", "MS1252")  # fmt: skip
_OF_ANY = ("java.lang.Number", "java.math.BigDecimal", "java.math.BigInteger", "java.util.Collection", "java.util.Date",
           "java.util.List", "java.util.Map", "java.util.Set", "java.time.ZoneId", "java.lang.Comparable",
           "java.lang.CharSequence", "java.io.Serializable", "java.lang.Iterable", "java.sql.Date", "java.sql.Time",
           "java.sql.Timestamp", "java.util.ArrayList", "java.util.LinkedList", "java.util.HashSet",
           "java.util.LinkedHashSet", "java.util.TreeSet", "java.util.HashMap", "java.util.LinkedHashMap",
           "java.util.TreeMap", "java.util.BitSet", "java.util.Map$Entry", "java.net.InetSocketAddress",
           "java.util.Calendar", "java.util.GregorianCalendar")  # fmt: skip
_OF_FINAL = ("[I", "[J", "[D", "[F", "[S", "[C", "[Z", "[B", "[Ljava.lang.String;", "java.util.UUID",
             "java.time.LocalDate", "java.time.LocalTime", "java.time.LocalDateTime", "java.time.Instant",
             "java.time.Duration", "java.util.Optional", "java.time.ZonedDateTime", "java.time.OffsetDateTime",
             "java.time.OffsetTime", "java.time.ZoneOffset", "java.time.Period", "java.time.Year",
             "java.time.YearMonth", "java.time.MonthDay", "java.util.OptionalInt", "java.util.OptionalLong",
             "java.util.OptionalDouble", "java.util.Currency", "java.net.URI", "java.util.regex.Pattern",
             "[Ljava.lang.Object;", "[Ljava.lang.Integer;", "[Ljava.lang.Long;", "[Ljava.lang.Double;")  # fmt: skip
"""Classes of the elements of arrays: those that others extend, so that each element tells its class, and final ones."""


def _of_fields(is_old: bool) -> dict[str, tuple[int, tuple[_Form, ...]]]:
    """The kind of each class that is written as fields, and their forms, which Kryo 2 has in the order of the names."""
    if is_old:
        number, date_time, offset = _plain(forms.INT), _tracked(forms.LOCAL_DATE_TIME), _tracked(forms.ZONE_OFFSET)
        found: dict[str, tuple[int, tuple[_Form, ...]]] = {
            "ZoneOffset": (forms.ZONE_OFFSET, (number,)),
            "ZoneRegion": (forms.ZONE, (_tracked(forms.TEXT),)),
            "ZonedDateTime": (forms.ZONED_DATE_TIME, (date_time, offset, _plain(forms.OPTIONAL))),
            "OffsetDateTime": (forms.OFFSET_DATE_TIME, (date_time, offset)),
            "OffsetTime": (forms.OFFSET_TIME, (offset, _tracked(forms.LOCAL_TIME))),
            "Period": (forms.PERIOD, (number, number, number)),
            "Year": (forms.YEAR, (number,)),
            "YearMonth": (forms.YEAR_MONTH, (number, number)),
            "MonthDay": (forms.MONTH_DAY, (number, number)),
        }
    else:
        number, byte, date_time = _plain(forms.UNSIGNED), _plain(forms.BYTE), _plain(forms.LOCAL_DATE_TIME)
        offset = _plain(forms.OFFSET)
        found = {
            "ZoneOffset": (forms.ZONE_OFFSET, (offset,)),
            "ZoneRegion": (forms.ZONE, (_plain(forms.TEXT),)),
            "ZonedDateTime": (forms.ZONED_DATE_TIME, (date_time, _plain(forms.TEXT))),
            "OffsetDateTime": (forms.OFFSET_DATE_TIME, (date_time, offset)),
            "OffsetTime": (forms.OFFSET_TIME, (_plain(forms.LOCAL_TIME), offset)),
            "Period": (forms.PERIOD, (number, number, number)),
            "Year": (forms.YEAR, (number,)),
            "YearMonth": (forms.YEAR_MONTH, (number, byte)),
            "MonthDay": (forms.MONTH_DAY, (byte, byte)),
        }
    return {f"java.time.{name}": each for name, each in found.items()}


def _by_name(is_old: bool) -> dict[str, _Form]:
    """The forms of the classes of the JDK, as Kryo writes them unless they are registered otherwise."""
    constant = _tracked if is_old else _plain  # Kryo 5 has no back references to enums
    found: dict[str, _Form] = {
        "java.lang.String": _tracked(forms.TEXT),
        "java.lang.StringBuilder": _tracked(forms.TEXT),
        "java.lang.StringBuffer": _tracked(forms.TEXT),
        "java.util.Currency": _tracked(forms.TEXT),
        "java.math.BigInteger": _tracked(forms.BIG_INTEGER),
        "java.math.BigDecimal": _tracked(forms.BIG_DECIMAL),
        "java.util.Date": _tracked(forms.MILLIS, forms.MILLIS),
        "java.util.TreeSet": _tracked(forms.LIST, 1),
        "java.util.TreeMap": _tracked(forms.MAP, 1),
        "java.util.Collections$EmptyList": _tracked(forms.EMPTY_LIST),
        "java.util.Collections$EmptySet": _tracked(forms.EMPTY_LIST),
        "java.util.Collections$EmptyMap": _tracked(forms.EMPTY_MAP),
        "java.util.Collections$SingletonList": _tracked(forms.SINGLE),
        "java.util.Collections$SingletonSet": _tracked(forms.SINGLE),
        "java.util.Collections$SingletonMap": (forms.SINGLE_ENTRY, 1, 0, forms.WITHOUT_HINT),
        "java.util.Optional": (forms.OPTIONAL, 1, 0, forms.TAKES_HINT if is_old else 0),
        "java.time.LocalDate": _tracked(forms.LOCAL_DATE),
        "java.time.LocalTime": _tracked(forms.LOCAL_TIME),
        "java.time.LocalDateTime": _tracked(forms.LOCAL_DATE_TIME),
        "java.time.Instant": _tracked(forms.INSTANT),
        "java.time.Duration": _tracked(forms.DURATION),
        "java.time.DayOfWeek": constant(forms.CONSTANT, 0),
        "java.time.Month": constant(forms.CONSTANT, 1),
        "java.util.concurrent.TimeUnit": constant(forms.CONSTANT, 2),
        "java.time.temporal.ChronoUnit": constant(forms.CONSTANT, 3),
        "java.math.RoundingMode": constant(forms.CONSTANT, 4),
        "java.util.Comparators$NaturalOrderComparator": constant(forms.CONSTANT, 5),
        "java.util.RegularEnumSet": _tracked(forms.ENUM_SET),
        "java.util.JumboEnumSet": _tracked(forms.ENUM_SET),
        "java.util.OptionalInt": _tracked(forms.MAYBE, forms.INT),
        "java.util.OptionalLong": _tracked(forms.MAYBE, forms.LONG),
        "java.util.OptionalDouble": _tracked(forms.MAYBE, forms.DOUBLE),
        "java.util.concurrent.atomic.AtomicInteger": _tracked(forms.INT),
        "java.util.concurrent.atomic.AtomicLong": _tracked(forms.LONG),
        "java.util.concurrent.atomic.AtomicBoolean": _tracked(forms.FLAG),
        "java.util.concurrent.atomic.AtomicReference": (forms.OPTIONAL, 1, 0, forms.TAKES_HINT),
        "sun.util.calendar.ZoneInfo": _tracked(forms.TEXT),
        "java.util.SimpleTimeZone": _tracked(forms.TEXT),
        "[B": _tracked(forms.BYTES),
        "[Ljava.lang.Object;": _tracked(forms.OBJECTS, -1),
    }
    for name in (*_LISTS, *_VIEWS):
        found[f"java.util.{name}"] = _tracked(forms.LIST)
    for name in (*_MAPS, *_MAP_VIEWS):
        found[f"java.util.{name}"] = _tracked(forms.MAP)
    for name in _IMMUTABLE_LISTS:
        found[f"java.util.ImmutableCollections${name}"] = (forms.LIST, 1, 0, 1)
    for name in ("MapN", "Map1"):
        found[f"java.util.ImmutableCollections${name}"] = _tracked(forms.MAP)
    for name in _CALENDARS:
        found[name] = _tracked(forms.CALENDAR)
    found["java.math.MathContext"] = _tracked(forms.MATH_CONTEXT)
    for name in _COMPARATORS:
        found[name] = _tracked(forms.NOTHING)
    for name in _ENTRIES:
        found[f"java.util.{name}"] = _tracked(forms.SINGLE_ENTRY)
    for name in _OF_ANY:
        found[f"[L{name};"] = _tracked(forms.OBJECTS, -1)
    if is_old:
        found["java.util.concurrent.ConcurrentSkipListMap"] = _tracked(forms.MAP)
        found["java.net.URL"] = _tracked(forms.URL)
    else:
        found["java.util.concurrent.ConcurrentSkipListMap"] = _tracked(forms.MAP, 1)
        found["java.net.URL"] = _tracked(forms.TEXT)
        for name in _CHARSETS:
            found[f"sun.nio.cs.{name}"] = _tracked(forms.TEXT)
    return {**found, **scala.AS_JAVA}


def _of_flink(is_old: bool) -> list[tuple[str, _Form]]:
    """The classes that Flink registers from 73 on."""
    chill = is_old
    return [
        ("java.util.Arrays$ArrayList", _tracked(forms.AS_LIST) if chill else _tracked(forms.LIST)),
        ("java.util.BitSet", _tracked(forms.BITS)),
        ("java.util.PriorityQueue", (forms.LIST, 1, 1, forms.WITHOUT_HINT if chill else 0)),
        ("java.util.regex.Pattern", _tracked(forms.TEXT if chill else forms.FLAGGED_TEXT)),
        ("java.sql.Date", _tracked(forms.MILLIS, forms.SQL_DATE)),
        ("java.sql.Time", _tracked(forms.MILLIS, forms.SQL_TIME)),
        ("java.sql.Timestamp", _tracked(forms.MILLIS_NANOS, 0 if chill else 1)),
        ("java.net.URI", _tracked(forms.TEXT)),
        ("java.net.InetSocketAddress", _tracked(forms.ADDRESS)),
        ("java.util.UUID", _tracked(forms.TWO_LONGS)),
        ("java.util.Locale", _plain(forms.OPAQUE_FORM) if chill else _tracked(forms.LOCALE)),
        ("java.text.SimpleDateFormat", _plain(forms.OPAQUE_FORM)),
    ]


def _placed(form: _Form, firsts: Mapping[int, int], of_fields: Mapping[int, tuple[_Form, ...]]) -> _Form:
    """The form; that of an object of fields with the place and the number of their forms."""
    kind, tracked, _, _ = form
    return (kind, tracked, firsts[kind], len(of_fields[kind])) if kind in of_fields else form


def _numbers_of_scala(rows: list[_Form], context: _Form, is_scala: bool) -> dict[str, int]:
    """Add the forms of the fields of Scala's big numbers, and return the forms of these.

    A ``BigDecimal`` is a number of Java, the hash code and a ``MathContext``, whose form is ``context``.
    A job with Flink's Scala API has a Scala before 2.13, whose ``BigInt`` is a number of Java.
    """
    decimal = len(rows)
    rows += [_tracked(forms.BIG_DECIMAL), _plain(forms.INT), context]
    whole = len(rows)
    rows += [_tracked(forms.BIG_INTEGER)]
    rows += [(forms.SHOWN, 1, decimal, 3), (forms.SHOWN, 1, whole, 1) if is_scala else _tracked(forms.BIG_INT)]
    return {"scala.math.BigDecimal": len(rows) - 2, "scala.math.BigInt": len(rows) - 1}


def _constant_of_a_field(is_old: bool, number: int) -> tuple[_Form, ...]:
    """The forms of a constant in a field of its enum: Kryo 5 has a 1 in front, which says that it is not null."""
    return (_tracked(forms.CONSTANT, number),) if is_old else (_plain(forms.UNSIGNED), _plain(forms.CONSTANT, number))


def _shown_by_one_field(rows: list[_Form], finite_duration: _Form, arrays: Mapping[str, int]) -> dict[str, int]:
    """Add the forms of the fields of some classes of which the last field is shown, and return the forms of these.

    A wrapper of Scala, whose object comes first, is "" here.
    """
    found: dict[str, int] = {}
    any_object = _plain(forms.OPTIONAL)
    for name, fields in (
        ("java.io.File", (_tracked(forms.TEXT),)),
        ("scala.concurrent.duration.Deadline", (finite_duration,)),
        ("java.util.concurrent.atomic.AtomicIntegerArray", (_tracked(forms.ARRAY, arrays["int"]),)),
        ("java.util.concurrent.atomic.AtomicLongArray", (_tracked(forms.ARRAY, arrays["long"]),)),
        ("", (any_object, any_object)),
    ):
        first = len(rows)
        rows += [*fields, (forms.LAST_SHOWN, 1, first, len(fields))]
        found[name] = len(rows) - 1
    return found


_BOXES = {"Integer": "int", "Float": "float", "Boolean": "boolean", "Byte": "byte", "Character": "char",
          "Short": "short", "Long": "long", "Double": "double"}  # fmt: skip


def is_public(class_name: str) -> bool:
    """Return whether the form of a class is known in any version of Kryo, or is not read in any."""
    known = [{each for each, _ in _of_flink(True)}, {f"java.lang.{box}" for box in _BOXES}, _PRIMITIVES]
    known += [scala.NAMED, scala.ALWAYS_NAMED, {name for name, _ in scala.NUMBERED}]
    known += [found for is_old in (True, False) for found in (_by_name(is_old), _of_fields(is_old))]
    return any(class_name in each for each in known)


def _of_enums(enums: Enums, is_old: bool, registered: Collection[str]) -> dict[str, _Form]:
    """The forms of declared enums and of their constants with bodies, which are classes with numbers behind the name.

    A name that ends with $ is that of an object of Scala: an Enumeration, or with one constant that object itself.
    The numbers count all classes without a name inside the enum. A constant of an enum that is registered is written
    under the number of the enum, so other classes have such names then.
    """
    constant = _tracked if is_old else _plain
    forms_of = {
        name: (forms.ENUMERATION, 1, number, int(len(constants) == 1))
        if name.endswith("$")
        else constant(forms.CONSTANT, number)
        for number, (name, constants) in enumerate(enums, len(CONSTANTS))
    }
    bodies = {
        f"{name}${body}": forms_of[name]
        for name, constants in enums
        if name not in registered and not name.endswith("$")
        for body in range(1, 4 * len(constants) + 17)
    }
    return bodies | forms_of


@lru_cache(64)
def kryo_forms(
    is_old: bool,
    registrations: tuple[tuple[str, bool], ...],
    classes: tuple[JobClass, ...] = (),
    is_scala: bool = False,
) -> KryoForms:
    """The forms for a serializer with these registrations: class names, and whether the job gave a serializer.

    ``classes`` are those that a user declares, but for classes to which the job gave a serializer.

    A class that Kryo or Flink has registered keeps its number, unless the job gave a serializer. ``is_scala``: the job
    has Flink's Scala API, which registers classes of Scala. Where that is not known, numbers behind such a class are
    not known either.
    """
    rows: list[_Form] = [_plain(forms.OPAQUE_FORM), _plain(forms.NOTHING)]
    kept: dict[_Form, int] = {rows[1]: forms.NOTHING_FORM}

    of_fields = dict(_of_fields(is_old).values())
    of_fields[forms.LOCALE] = (_plain(forms.TEXT),) * 3
    of_fields[forms.ADDRESS] = (_plain(forms.TEXT), _plain(forms.UNSIGNED))
    text, number = _tracked(forms.TEXT), _plain(forms.INT)
    of_fields[forms.URL] = (text, text, number, text, number, text, text)
    of_fields[forms.CALENDAR] = (
        _plain(forms.TEXT), _plain(forms.MILLIS, forms.MILLIS), _plain(forms.BOOL), _plain(forms.UNSIGNED),
        _plain(forms.UNSIGNED), _plain(forms.LONG),
    )  # fmt: skip
    of_fields[forms.MATH_CONTEXT] = (number, *_constant_of_a_field(is_old, 4))
    of_fields[forms.FINITE_DURATION] = (_plain(forms.LONG), *_constant_of_a_field(is_old, 2))
    firsts: dict[int, int] = {}
    for kind, fields in of_fields.items():  # behind one another, as the walk takes them
        firsts[kind] = len(rows)
        rows += [_placed(each, firsts, of_fields) for each in fields]

    def row(form: _Form) -> int:
        if form[0] == forms.OPAQUE_FORM:
            return 0
        form = _placed(form, firsts, of_fields)
        if form not in kept:
            kept[form] = len(rows)
            rows.append(form)
        return kept[form]

    named = {name: row(form) for name, form in _by_name(is_old).items()}
    elements = {each: row(_plain(_PRIMITIVES[each])) for each in ("int", "long")}
    shown = _shown_by_one_field(rows, _placed(_tracked(forms.FINITE_DURATION), firsts, of_fields), elements)
    wrapper = shown.pop("")
    named |= shown | _numbers_of_scala(rows, rows[named["java.math.MathContext"]], is_scala)
    named |= {name: row(form) for name, form in scala.ALWAYS_NAMED.items()}
    if not is_scala:
        named["scala.Some"] = row(scala.FIELD[is_old])
    if is_old:
        of_job = {**scala.NAMED, **dict(scala.NUMBERED)} if is_scala else scala.VALUE
        named |= {name: row(form) for name, form in of_job.items()}
    named |= {name: row(_tracked(kind)) for name, (kind, _) in _of_fields(is_old).items()}
    for letter, primitive in zip("IFZBCSJD", _PRIMITIVES, strict=True):
        element = row(_plain(_PRIMITIVES[primitive]))
        if letter != "B":
            named[f"[{letter}"] = row(_tracked(forms.ARRAY, element))
    for box, primitive in _BOXES.items():
        named[f"[Ljava.lang.{box};"] = row(_tracked(forms.OBJECTS, row(_plain(_PRIMITIVES[primitive]))))
    named["[Ljava.lang.String;"] = row(_tracked(forms.OBJECTS, named["java.lang.String"]))
    by_number = {name: row(form) for name, form in _of_flink(is_old)}
    for name in _OF_FINAL:
        array = f"[{name}" if name.startswith("[") else f"[L{name};"
        named[array] = row(_tracked(forms.OBJECTS, named.get(name) or by_number[name]))
    numbers = [named[each] if each in named else row(_plain(_PRIMITIVES[each])) for each in _FIRST_NUMBERS]
    numbers.append(row(_plain(forms.VOID)) if is_old else 0)
    of_scala = scala.NUMBERED if is_old else ()
    numbers += [wrapper if is_scala and name in scala.WRAPPERS else row(form) for name, form in of_scala]
    numbers += [0] * (FIRST_OF_FLINK - len(numbers))
    names_of_scala = {name for name, _ in of_scala}
    fixed = {*_FIRST_NUMBERS, *(f"java.lang.{box}" for box in _BOXES), "java.lang.Void"}
    for name, form in _of_flink(is_old):
        numbers.append(row(form))
        fixed.add(name)
    fields_of = {each.name for each in classes if each.fields and each.superclass != scala.ENUMERATION}
    for name, form in _of_enums(enums_of(classes), is_old, {name for name, _ in registrations}).items():
        is_unsure = name.endswith("$") and name in fields_of and not is_scala  # with the Scala API they are not written
        if name not in fixed and not is_unsure:
            named.setdefault(name, row(form))
    own = {name for name, has_serializer in registrations if has_serializer}
    plain = {name: row(_plain(kind)) for name, kind in _PRIMITIVES.items()}
    builder = ObjectForms(
        classes, rows, lambda name: named.get(name) or by_number.get(name) or plain.get(name, 0), own,
        is_old=is_old, is_scala=is_scala,
    )  # fmt: skip
    for name, found in builder.named().items():
        if found and name not in fixed:
            named.setdefault(name, found)
    if builder.has_unsure_optionals:
        takes = (forms.OPTIONAL, 1, 0, forms.TAKES_HINT)
        rows[:] = [(forms.OPTIONAL, 1, 0, forms.UNSURE) if each == takes else each for each in rows]
    for name, has_serializer in registrations:
        if has_serializer:
            numbers.append(0)
            named.pop(name, None)
            fixed.add(name)
        elif name in names_of_scala:
            if not is_scala:
                break
        elif name not in fixed:
            numbers.append(named.get(name, 0))
            fixed.add(name)
    order = sorted(named, key=str.encode)
    ends = np.cumsum([0, *(len(each.encode()) for each in order)])
    return KryoForms(
        is_old,
        np.array(rows, np.int64),
        np.array(numbers, np.int64),
        np.frombuffer("".join(order).encode(), np.uint8).copy(),
        ends.astype(np.int64),
        np.array([named[each] for each in order], np.int64),
        tuple(builder.objects),
    )
