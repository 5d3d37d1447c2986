"""The forms of objects of a job's classes in Kryo, by the declarations of these: what its ``FieldSerializer`` writes.

An object is its fields and those of its superclasses, in the order of their names. A field of a primitive type is a
number, one of a final class an object without its class, or null, and all others tell the classes of their objects.

The type of a field also says how the elements of a collection in it are written: ``List<String>`` has texts without
their class. That is a hint, as only the object tells whether it is such a collection. Kryo 5 follows types into their
arguments, Kryo 2 does not. Kryo 2 keeps the types of variables of a generic class, such as ``Optional``, for its next
objects, so that those outside of such fields cannot be told where one of the types is a final class.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from statestore.formats.flink.layouts import kryo_scala as scala
from statestore.formats.flink.layouts.kryo_scala import Form
from statestore.formats.flink.serializers.job_classes import JavaType, JobClass, JobField
from statestore.formats.kernels import kryo_forms as forms

OBJECT_CLASS = "java.lang.Object"
_WILD = "?"
_FINAL = (
    "java.lang.String", "java.lang.StringBuilder", "java.lang.StringBuffer", "java.util.UUID", "java.util.Optional",
    "java.util.OptionalInt", "java.util.OptionalLong", "java.util.OptionalDouble", "java.util.Currency",
    "java.util.Locale", "java.net.URI", "java.net.URL", "java.util.regex.Pattern", "java.math.RoundingMode",
    *(f"java.time.{name}" for name in ("LocalDate", "LocalTime", "LocalDateTime", "Instant", "Duration",
                                       "ZonedDateTime", "OffsetDateTime", "OffsetTime", "ZoneOffset", "Period", "Year",
                                       "YearMonth", "MonthDay", "DayOfWeek", "Month", "temporal.ChronoUnit")),
)  # fmt: skip
_OPEN = (
    *(f"java.lang.{name}" for name in ("Object", "Number", "CharSequence", "Comparable", "Iterable", "Enum",
                                       "Cloneable")),
    *(f"java.util.{name}" for name in ("Collection", "List", "Set", "Map", "SortedMap", "NavigableMap", "SortedSet",
                                       "NavigableSet", "Queue", "Deque", "AbstractCollection", "AbstractList",
                                       "AbstractSet", "AbstractMap", "AbstractQueue", "RandomAccess", "EnumSet",
                                       "TimeZone", "Comparator", "Map$Entry", "Calendar")),
    *(f"java.util.concurrent.{name}" for name in ("ConcurrentMap", "ConcurrentNavigableMap", "BlockingQueue",
                                                  "BlockingDeque")),
    "java.io.Serializable", "java.time.ZoneId",
)  # fmt: skip
"""Interfaces and classes that others extend, beside those whose objects are read."""
_BOXES: Mapping[str, str] = {
    f"java.lang.{box}": primitive
    for box, primitive in (("Integer", "int"), ("Float", "float"), ("Boolean", "boolean"), ("Byte", "byte"),
                           ("Character", "char"), ("Short", "short"), ("Long", "long"), ("Double", "double"))
}  # fmt: skip
_LETTERS: Mapping[str, str] = {
    "int": "I", "float": "F", "boolean": "Z", "byte": "B", "char": "C", "short": "S", "long": "J", "double": "D",
}  # fmt: skip
TUPLES: Mapping[str, JobClass] = {
    name: JobClass(
        name,
        tuple(JobField(f"f{place}", JavaType("", variable=f"T{place}")) for place in range(arity)),
        parameters=tuple(f"T{place}" for place in range(arity)),
    )
    for arity in range(1, 26)
    for name in (f"org.apache.flink.api.java.tuple.Tuple{arity}",)
}
"""Flink's tuples, which Kryo writes as objects of any class."""
_OPTIONALS = ("java.util.Optional", "java.util.concurrent.atomic.AtomicReference", "scala.Option", "scala.Some")
"""Classes with one field of a variable's type; with Flink's Scala API those of Scala have another form."""
_PRIVATE = re.compile(r"(?:[^$]+\$)+\$(?=[^$]+$)")
_STATISTICS: Mapping[str, Mapping[str, str]] = {
    "Int": {"count": "long", "sum": "long", "min": "int", "max": "int"},
    "Long": {"count": "long", "sum": "long", "min": "long", "max": "long"},
    "Double": {name: "long" if name == "count" else "double"
               for name in ("count", "sum", "sumCompensation", "simpleSum", "min", "max")},
}  # fmt: skip
STATISTICS: Mapping[str, JobClass] = {
    name: JobClass(name, tuple(JobField(field, JavaType(kind)) for field, kind in fields.items()))
    for numbers, fields in _STATISTICS.items()
    for name in (f"java.util.{numbers}SummaryStatistics",)
}
"""Statistics of numbers, which Kryo writes as objects of any class."""
_UNKNOWN: Form = (forms.FIELD, forms.UNKNOWN, 0, 0)
_NAMED: Form = (forms.FIELD, 0, 0, 0)
_Types = tuple[tuple[str, JavaType], ...]
"""Variables of a class and their types."""


@dataclass(frozen=True)
class ObjectFields:
    """The fields of the objects of a class: names and types in the order of the bytes, and the order they are shown in.

    Those of superclasses come first there. A field with a name that a field of a subclass has too is shown with the
    name of its class: ``Base.id``.

    ``hidden`` are the numbers of fields that are not shown. ``lazy`` are those that have a value only if another one
    has a bit: the number of the field, that of the other, and the bit.
    """

    name: str
    fields: tuple[tuple[str, JavaType], ...]
    order: tuple[int, ...]
    hidden: frozenset[int] = frozenset()
    lazy: tuple[tuple[int, int, int], ...] = ()

    @property
    def shown(self) -> ObjectFields:
        """The class without hidden fields, and as if none were lazy."""
        if not self.hidden:
            return self
        kept = [number for number in range(len(self.fields)) if number not in self.hidden]
        order = tuple(kept.index(number) for number in self.order if number not in self.hidden)
        return ObjectFields(self.name, tuple(self.fields[number] for number in kept), order)


class ObjectForms:
    """Adds the forms of objects to ``rows``; ``known`` has the form of a class that is not the job's, 0 for none.

    ``own`` are the classes to which the job gave a serializer.
    """

    def __init__(
        self,
        classes: tuple[JobClass, ...],
        rows: list[Form],
        known: Callable[[str], int],
        own: Collection[str],
        *,
        is_old: bool,
        is_scala: bool,
    ) -> None:
        self.classes = {**TUPLES, **STATISTICS, **{each.name: each for each in classes}}
        self.rows, self.known, self.own = rows, known, own
        self.is_old, self.is_scala = is_old, is_scala
        self.objects: list[ObjectFields] = []
        self.has_unsure_optionals = False
        self._numbers: dict[str, int] = {}
        self._made: dict[tuple[str, _Types], int] = {}
        self._hints: dict[tuple[JavaType, _Types], int] = {}
        self._arrays: dict[str, int] = {}
        self._waiting: list[tuple[int, list[tuple[JobField, _Types]], bool]] = []

    def named(self) -> dict[str, int]:
        """The forms of objects of all classes by their names, with those of arrays."""
        found: dict[str, int] = {}
        for name, each in self.classes.items():
            if each.constants is None and not each.is_abstract and self._fields(each, ()) is not None:
                found[name] = self._object(name, ())
        for name in self.classes:
            for dimensions in (1, 2):
                array = _array_name(name, dimensions)
                found[array] = self._array(array)
        while self._waiting:
            first, fields, is_record = self._waiting.pop()
            for place, (field, types) in enumerate(fields, first):
                self.rows[place] = self._field(field.type, types, is_record)
        if self.is_old:
            self._mark_unsure()
        return found

    def _mark_unsure(self) -> None:
        """Mark the classes of which Kryo 2 may have kept a final class as the type of a variable."""
        for (name, types), form in list(self._made.items()):
            if types and any(self._is_final(kind) is not False for _, kind in types):
                plain = self._made.get((name, ()))
                if plain is not None and plain != form:
                    row = self.rows[plain][2] - 1
                    self.rows[row] = (*self.rows[row][:3], 1)

    def _fields(self, found: JobClass, types: _Types) -> list[tuple[JobField, _Types]] | None:
        """The fields of a class and its superclasses in the order of the bytes; None where one is not declared."""
        fields: list[tuple[JobField, _Types]] = []
        seen: set[str] = set()
        while True:
            kept = [each for each in found.fields if self.is_scala or not each.is_synthetic]
            fields += [(each, types) for each in sorted(kept, key=lambda field: field.name.encode("utf-16-be"))]
            seen.add(found.name)
            if found.superclass in ("", OBJECT_CLASS, "java.lang.Record"):
                break
            above = self.classes.get(found.superclass)
            if above is None or above.name in seen:
                return None
            if not self.is_old:  # Kryo 2 looks for variables of a superclass by their names alone
                given = [_resolved(each, types) for each in found.superclass_arguments]
                pairs = zip(above.parameters, given, strict=False)
                types = tuple((name, kind) for name, kind in pairs if kind is not None)
            found = above
        return sorted(fields, key=lambda pair: pair[0].name.encode("utf-16-be"))

    def _object(self, name: str, types: _Types) -> int:
        """The form of objects of a class whose variables have these types."""
        if (name, types) not in self._made:
            found = self.classes[name]
            fields = self._fields(found, types)
            assert fields is not None
            if name not in self._numbers:
                self._numbers[name] = len(self.objects)
                self.objects.append(self._shown(found, fields))
            first = len(self.rows) + 1
            self.rows += [(forms.CLASS, int(bool(found.parameters)), self._numbers[name], 0)]
            self.rows += [_UNKNOWN] * len(fields)
            self._made[name, types] = len(self.rows)
            self.rows.append((forms.OBJECT, 1, first, len(fields)))
            self._waiting.append((first, fields, found.is_record and not self.is_old))
        return self._made[name, types]

    def _shown(self, found: JobClass, fields: list[tuple[JobField, _Types]]) -> ObjectFields:
        chain = [found]
        while chain[-1].superclass in self.classes:
            chain.append(self.classes[chain[-1].superclass])
        known = [_known_names(each) for each in chain]
        names, order, taken, places = [], {}, set(), {}
        for number, (field, _) in enumerate(fields):
            depth, whose = next(
                (depth, each)
                for depth, each in enumerate(chain)
                if field in each.fields and (depth, field) not in taken
            )
            taken.add((depth, field))
            places[depth, field.name] = number
            name = known[depth][field.name]
            is_taken = any(name in each.values() for each in known[:depth])
            simple = whose.name.replace("$", ".").rpartition(".")[2]
            names.append(f"{simple}.{name}" if is_taken else name)
            order[number] = (-depth, whose.fields.index(field))
        lazy = tuple(
            (places[depth, each.name], places[depth, each.bitmap], each.bit)
            for depth, whose in enumerate(chain)
            for each in whose.fields
            if each.bitmap
        )
        types = [_resolved(field.type, types) or field.type for field, types in fields]
        return ObjectFields(
            found.name,
            tuple(zip(names, types, strict=True)),
            tuple(sorted(order, key=order.__getitem__)),
            frozenset(bitmap for _, bitmap, _ in lazy),
            lazy,
        )

    def _field(self, declared: JavaType, types: _Types, is_record: bool) -> Form:
        """The form of a field."""
        kind = _resolved(declared, types)
        if kind is None or (declared.variable and declared.dimensions):
            bounds = JavaType(declared.name or OBJECT_CLASS, declared.dimensions)
            return _NAMED if kind is None and self._is_final(bounds) is False else _UNKNOWN
        if kind.dimensions and kind.arguments and self.is_old:
            return _UNKNOWN  # their types are kept for the elements
        is_final = self._is_final(kind)
        if is_final:
            return self._typed(kind, types)
        if is_final is None:
            return _UNKNOWN
        return (forms.FIELD, 0, 0, 0 if is_record or kind.dimensions else self._hint(kind, types))

    def _typed(self, kind: JavaType, types: _Types) -> Form:
        """The form of a field of a final class, whose objects do not tell it."""
        if not kind.dimensions and kind.name in _LETTERS:
            return (forms.FIELD, 0, self.known(kind.name), 0)
        if kind.name in self.own:
            return _UNKNOWN
        if not kind.dimensions and kind.name in _BOXES:
            return (forms.FIELD, forms.NULLABLE, self.known(_BOXES[kind.name]), 0)
        found = self.classes.get(kind.name)
        hint = 0
        if kind.dimensions:
            form = self._array(_array_name(kind.name, kind.dimensions))
        elif found is not None and found.constants is None:
            if self._fields(found, ()) is None:
                return _UNKNOWN
            form, hint = self._object(kind.name, ()), self._hint(kind, types)
        else:
            form, hint = self.known(kind.name), self._hint(kind, types)
        if form == 0:
            return _UNKNOWN
        return (forms.FIELD, 0 if self.rows[form][1] else forms.NULLABLE, form, hint)

    def _array(self, name: str) -> int:
        """The form of an array with this name, 0 where there is none."""
        known = self.known(name)
        if known or name in self._arrays:
            return known or self._arrays[name]
        inner = name[1:]
        element = inner[1:-1] if inner.startswith("L") else inner
        if element.startswith("["):
            form = self._array(element)
        else:
            found = self.classes.get(element)
            form = -1
            if found is None or element in self.own:
                form = -1 if found is not None and not found.is_final else 0
            elif found.is_final:
                if found.constants is not None:
                    form = self.known(element)
                else:
                    form = 0 if self._fields(found, ()) is None else self._object(element, ())
        if form == 0:
            return 0
        self._arrays[name] = len(self.rows)
        self.rows.append((forms.OBJECTS, 1, form, 0))
        return self._arrays[name]

    def _hint(self, kind: JavaType, types: _Types) -> int:
        """The form of what a type says of the objects inside, 0 where it has no arguments."""
        if not kind.arguments:
            return 0
        if (kind, types) not in self._hints:
            of_object = self._object_of(kind, types)
            slots = [self._slot(each, types) for each in kind.arguments[:2]]
            if self.is_old and kind.name in _OPTIONALS and not (self.is_scala and kind.name.startswith("scala.")):
                self.has_unsure_optionals |= slots[0] != _NAMED
            first = len(self.rows)
            self.rows += slots
            self._hints[kind, types] = len(self.rows)
            self.rows.append((forms.HINT, of_object, first, first + len(slots) - 1))
        return self._hints[kind, types]

    def _object_of(self, kind: JavaType, types: _Types) -> int:
        """The form of objects of a generic class with the arguments of a type, 0 where there is none."""
        found = self.classes.get(kind.name)
        if found is None or len(found.parameters) != len(kind.arguments) or found.is_abstract:
            return 0
        if found.constants is not None or self._fields(found, ()) is None:
            return 0
        given: list[tuple[str, JavaType]] = []
        for name, argument in zip(found.parameters, kind.arguments, strict=True):
            each = JavaType(OBJECT_CLASS) if self.is_old and argument.variable == _WILD else _resolved(argument, types)
            if each is None and len(kind.arguments) > 1:
                return 0
            if each is not None:
                given.append((name, JavaType(each.name, each.dimensions)))
        return self._object(kind.name, tuple(given))

    def _slot(self, argument: JavaType, types: _Types) -> Form:
        """The form of the objects that an argument of a type says."""
        kind = _resolved(argument, types)
        if kind is None or (self.is_old and argument.variable == _WILD):
            return _NAMED
        is_final = self._is_final(kind)
        if is_final:
            return self._typed(kind, types)
        if is_final is None:
            return _UNKNOWN
        is_plain = self.is_old or kind.dimensions or argument.variable
        return (forms.FIELD, 0, 0, 0 if is_plain else self._hint(kind, types))

    def _is_final(self, kind: JavaType) -> bool | None:
        """Whether no class extends that of a type; None where it is not known."""
        name = kind.name or OBJECT_CLASS
        found = self.classes.get(name)
        if found is not None:
            return found.is_final and not found.is_abstract
        if name in _LETTERS or name in _BOXES or name in _FINAL:
            return True
        if name.startswith("scala."):
            return scala.is_final(name, is_scala=self.is_scala)
        return False if name in _OPEN or self.known(name) else None


def _known_names(found: JobClass) -> dict[str, str]:
    """The names of a class's fields as people know them: Scala puts that of the trait before a private val of it.

    Two vals that have one name then keep their long ones.
    """
    short = {each.name: _PRIVATE.sub("", each.name) for each in found.fields}
    counts = Counter(short.values())
    return {name: each if counts[each] == 1 else name for name, each in short.items()}


def _resolved(kind: JavaType, types: _Types) -> JavaType | None:
    """The type, or that of a variable; None for a variable without one. A bound of a wildcard has no arguments."""
    if kind.variable in ("", _WILD):
        if kind.variable == "" and kind.name == "":
            return None
        return kind if not kind.variable else JavaType(kind.name, kind.dimensions)
    found = dict(types).get(kind.variable)
    return None if found is None else JavaType(found.name, found.dimensions + kind.dimensions)


def _array_name(name: str, dimensions: int) -> str:
    return "[" * dimensions + _LETTERS.get(name, f"L{name};")
