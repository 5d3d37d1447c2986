"""Declarations of a job's classes in Kryo, made of what the same snapshot says of them elsewhere.

A class that one state has as a POJO, or an enum that has a serializer of its own, is described there: the fields with
their types, the names of the constants. Kryo needs a little more, so the declarations that the description allows are
tried against values. What fits is told to the user, and never used by itself: a snapshot does not tell ``int`` from
``Integer`` or the type inside a list, and after a change of an enum it has the constants in the order of the old class.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from statestore.formats.flink.columns.faults import Opacity, Short, Wrong
from statestore.formats.flink.columns.kryo_survey import MOST_OCTETS
from statestore.formats.flink.columns.kryo_tapes import Scratch, end_of, forms_of, unknown_class
from statestore.formats.flink.found_classes import with_classes
from statestore.formats.flink.layouts.class_declarations import CLASS, declared_text, is_of_java, type_text
from statestore.formats.flink.layouts.class_remedies import in_the_way, remedy_for
from statestore.formats.flink.layouts.kryo_objects import TUPLES
from statestore.formats.flink.serializers.flink_types import (
    ArrayOf,
    Basic,
    EnumOf,
    FlinkType,
    KryoOf,
    ListOf,
    MapOf,
    Nullable,
    PojoOf,
    PrimitiveArray,
    StringArray,
    TupleOf,
    replaced,
)
from statestore.formats.flink.serializers.job_classes import JavaType, JobClass, JobField
from statestore.formats.flink.serializers.type_names import shown

Described = Mapping[str, tuple[PojoOf | EnumOf, ...]]
"""Descriptions of classes in a snapshot, by their names: several where different releases wrote its states."""
_MOST_TRIED = 400
_MOST_LOOKS = 6
_MOST_CLASSES = 16
_BODY = re.compile(r"\$[0-9]+$")
_BOXES = {"int": "Integer", "char": "Character"}
_PRIMITIVES = ("boolean", "byte", "char", "short", "int", "long", "float", "double")
_BASICS = {
    "string": "java.lang.String", "biginteger": "java.math.BigInteger", "bigdecimal": "java.math.BigDecimal",
    "date": "java.util.Date", "sql_date": "java.sql.Date", "sql_time": "java.sql.Time",
    "sql_timestamp": "java.sql.Timestamp", "local_date": "java.time.LocalDate", "local_time": "java.time.LocalTime",
    "local_date_time": "java.time.LocalDateTime", "instant": "java.time.Instant",
}  # fmt: skip
_OF_ONE = ("Collection", "List", "Set", "SortedSet", "ArrayList", "LinkedList", "HashSet", "TreeSet", "Optional")
_OF_TWO = ("Map", "SortedMap", "HashMap", "LinkedHashMap", "TreeMap", "concurrent.ConcurrentHashMap")
_INSIDE = tuple(JavaType(f"java.lang.{name}") for name in ("String", "Integer", "Long", "Double"))


@dataclass(frozen=True)
class Looked:
    """A look at values by some declarations: so many ``rows``, and whether all that were met fit.

    ``kind`` is the part of Kryo that was not read to its end, ``octets`` are the bytes that begin there, and ``name``
    is that of another class that stands in the way; ``is_wrong``: none does, but no such value has these bytes.
    """

    rows: int
    fits: bool
    kind: KryoOf | None = None
    name: str | None = None
    octets: bytes = b""
    is_wrong: bool = False


Look = Callable[[Mapping[str, JobClass]], Looked]


def described_in(found: Iterable[object]) -> Described:
    """The POJOs and enums in types, or in dataclasses that hold types."""
    classes: dict[str, dict[PojoOf | EnumOf, None]] = {}

    def note(kind: FlinkType) -> FlinkType:
        if (isinstance(kind, PojoOf) and not kind.is_declared) or (isinstance(kind, EnumOf) and not kind.ids):
            classes.setdefault(kind.class_name, {})[kind] = None
        return kind

    for each in found:
        replaced(each, note)
    return {name: tuple(kinds) for name, kinds in classes.items()}


def suggestion(looked: Looked, described: Described, look: Look) -> str:
    """The options to give where a class stands in the way of a look at values, "" where none would help.

    ``look`` looks again, by the classes that it is given.
    """
    kind, name = looked.kind, looked.name
    assert kind is not None
    usual = remedy_for(kind, name)
    found: dict[str, JobClass] = {}
    met: list[Looked] = []
    while usual and looked.kind is not None and len(found) < _MOST_CLASSES:
        wanted = _described_name(looked, described, found)
        if wanted is None:
            break
        met.append(looked)
        for each in described[wanted]:
            fitting, again = _fitting(each, described, found, met, look)
            if fitting:
                break
        else:
            told = shown(described[wanted][0])
            return f"{usual}; this snapshot has it as {told}, of which no declaration could be made that fits"
        found, looked = fitting, again
    if not found or not usual:
        return usual
    text = ";".join(f"{CLASS}{each.name}={declared_text(each)}" for each in found.values())
    if looked.kind is not None:
        more = next(iter(in_the_way(looked.kind, looked.name)), "...")
        return (
            f"give --classes with the job's jar, or declare the classes: --type '{text};{CLASS}{more}=class<...>', of "
            "which the last is not described in this snapshot, and the others are, so compare them with the code"
        )
    return (
        f"give --classes with the job's jar, or --type '{text}', by what this snapshot says of the class in other "
        f"places; it fits the {looked.rows} rows that were looked at, but compare it with the code"
        f"{_unsure(found, met, look)}"
    )


def _described_name(looked: Looked, described: Described, found: Mapping[str, JobClass]) -> str | None:
    """The class in the way that the snapshot describes; a constant of an enum with a body has a class of its own."""
    assert looked.kind is not None
    for name in in_the_way(looked.kind, looked.name):
        for each in (name, _BODY.sub("", name)):
            if each in described and each not in found:
                return each
    return None


def _fitting(
    kind: PojoOf | EnumOf, described: Described, found: Mapping[str, JobClass], met: list[Looked], look: Look
) -> tuple[dict[str, JobClass], Looked]:
    """Declarations of a class and of those in its fields, with which a look gets further, and that look; else none.

    ``met`` has the values that could not be read, and gets more of them.
    """
    parts = _parts(kind, described)
    chosen: tuple[int, ...] = (0,) * len(parts)
    for _ in range(_MOST_LOOKS):
        best = _best(parts, chosen, found, met) if parts else None
        if best is None:
            break
        chosen, tried = best, {**_declared(parts, best), **found}
        again = look(tried)
        if again.fits or (again.kind is not None and not again.is_wrong and again.name not in tried):
            return tried, again
        if again.kind is None or not again.is_wrong:
            break
        met.append(again)  # a later value tells more of the types
    return {}, Looked(0, False)


def _best(
    parts: Sequence[_Part], chosen: tuple[int, ...], found: Mapping[str, JobClass], met: Sequence[Looked]
) -> tuple[int, ...] | None:
    """The options of the parts that read all values, None where none of those that were tried do.

    What reads further into the values is changed first, one part at a time.
    """

    def read(options: tuple[int, ...]) -> float:
        classes = {**_declared(parts, options), **found}
        far = 0.0
        for whole, each in enumerate(met, 1):
            far += _progress(each, classes)
            if far < whole:
                break
        return far

    known, waiting = {chosen: read(chosen)}, [chosen]
    while waiting and len(known) < _MOST_TRIED:
        best = max(waiting, key=known.__getitem__)
        if known[best] >= len(met):
            return best
        waiting.remove(best)
        for place, (_, _, types) in enumerate(parts):
            for option in range(len(types)):
                options = (*best[:place], option, *best[place + 1 :])
                if options not in known:
                    known[options] = read(options)
                    waiting.append(options)
    return next((options for options, far in known.items() if far >= len(met)), None)


class _Watched:
    """Bytes that remember how far they were read."""

    def __init__(self, octets: bytes) -> None:
        self.octets, self.most = octets, 0

    def __getitem__(self, place: int) -> int:
        if place > self.most:
            self.most = place
        return self.octets[place]


def _progress(looked: Looked, classes: Mapping[str, JobClass]) -> float:
    """How far a value can be read by classes: 1 for all of it, or up to another class of the job."""
    kind = looked.kind
    assert kind is not None
    asked = with_classes(kind, classes)
    assert isinstance(asked, KryoOf)
    data, scratch = _Watched(looked.octets), Scratch(len(looked.octets))
    try:
        end_of(forms_of(asked), data, 0, len(looked.octets), scratch)  # type: ignore[arg-type]
    except Opacity:
        name = unknown_class(memoryview(looked.octets), scratch)
        if name is not None and name not in classes and in_the_way(asked, name):
            return 1.0
    except Short:
        if len(looked.octets) >= MOST_OCTETS:  # they are cut there
            return 1.0
    except Wrong:
        pass
    else:
        return 1.0
    return min(data.most / (len(looked.octets) + 1), 0.99)


_Part = tuple["PojoOf | EnumOf", str, "Sequence[JavaType | bool]"]
"""A class, a field of it and the types that it may have; or "" and whether the class is final."""


def _parts(kind: PojoOf | EnumOf, described: Described) -> list[_Part]:
    """Choices that a description leaves open of a class and those in its fields, the usual first; none where a field
    cannot be declared.
    """
    classes = _reached(kind, described)
    named = {each.name for found in classes for options in _fields(found).values() for each in _all_types(options)}
    parts: list[_Part] = []
    for found in classes:
        parts += [(found, name, options) for name, options in _fields(found).items()]
        is_enum = isinstance(found, EnumOf)
        parts.append((found, "", (is_enum, not is_enum) if is_enum or found.class_name in named else (False,)))
    return parts


def _declared(parts: Sequence[_Part], chosen: Sequence[int]) -> dict[str, JobClass]:
    """The classes with these options."""
    found: dict[str, JobClass] = {}
    for (kind, name, options), place in zip(parts, chosen, strict=True):
        option = options[place]
        known = found.setdefault(kind.class_name, JobClass(kind.class_name, constants=getattr(kind, "constants", None)))
        if isinstance(option, JavaType):
            found[kind.class_name] = replace(known, fields=(*known.fields, JobField(name, option)))
        else:
            found[kind.class_name] = replace(known, is_final=option)
    return found


def _reached(kind: PojoOf | EnumOf, described: Described) -> list[PojoOf | EnumOf]:
    """The class and those in its fields; none where a field has a type that cannot be declared."""
    found: dict[str, PojoOf | EnumOf] = {}
    waiting = [kind]

    def note(inner: FlinkType) -> FlinkType:
        if isinstance(inner, (PojoOf, EnumOf)):
            waiting.append(inner)
        return inner

    while waiting and len(found) < _MOST_CLASSES:
        each = waiting.pop(0)
        if each.class_name in found:
            continue
        found[each.class_name] = each
        types = _fields(each)
        if not all(types.values()):
            return []
        if isinstance(each, PojoOf):
            replaced(tuple(inner for _, inner in each.fields), note)
        named = {name for options in types.values() for name in _names(options)}
        waiting += [described[name][0] for name in named if name in described]
        known = {*found, *(one.class_name for one in waiting), *TUPLES}
        if not named <= known:
            return []
    return list(found.values())


def _names(options: Iterable[JavaType]) -> Iterator[str]:
    """The classes in types that need a declaration."""
    return (each.name for each in _all_types(options) if not is_of_java(each.name))


def _all_types(options: Iterable[JavaType]) -> Iterator[JavaType]:
    for each in options:
        yield each
        yield from _all_types(each.arguments)


def _fields(kind: PojoOf | EnumOf) -> dict[str, tuple[JavaType, ...]]:
    """The types that each field may have, none where it cannot be declared."""
    return {} if isinstance(kind, EnumOf) else {name: _types(each) for name, each in kind.fields}


def _types(kind: FlinkType) -> tuple[JavaType, ...]:
    """The types of Java of which this may be the serializer's, the usual one first."""
    if isinstance(kind, Nullable):
        return _types(kind.value)
    if isinstance(kind, Basic):
        if kind.class_name or kind.name not in (*_PRIMITIVES, *_BASICS):
            return ()
        if kind.name in _BASICS:
            return (JavaType(_BASICS[kind.name]),)
        return (JavaType(kind.name), JavaType(f"java.lang.{_BOXES.get(kind.name, kind.name.capitalize())}"))
    if isinstance(kind, (PojoOf, EnumOf)):
        return (JavaType(kind.class_name),)
    if isinstance(kind, PrimitiveArray):
        return (JavaType(kind.element, 1),)
    if isinstance(kind, StringArray):
        return (JavaType("java.lang.String", 1),)
    if isinstance(kind, ArrayOf):
        return tuple(replace(each, dimensions=each.dimensions + 1) for each in _types(kind.element)[-1:])
    if isinstance(kind, ListOf):
        return _generic("java.util.Set" if kind.is_set else "java.util.List", (kind.element,))
    if isinstance(kind, MapOf):
        return _generic("java.util.Map", (kind.key, kind.value))
    if isinstance(kind, TupleOf) and kind.class_name in TUPLES:
        return _generic(kind.class_name, kind.fields)
    return _of_kryo(kind.class_name) if isinstance(kind, KryoOf) else ()


def _generic(name: str, arguments: Sequence[FlinkType]) -> tuple[JavaType, ...]:
    """A generic type; those of its arguments are no primitives."""
    given = [_types(each)[-1:] for each in arguments]
    return (JavaType(name, 0, tuple(each for (each,) in given)),) if all(given) else ()


def _of_kryo(name: str) -> tuple[JavaType, ...]:
    """The types of a field that Flink leaves to Kryo: the file has no arguments of generic ones."""
    short = name.removeprefix("java.util.")
    if short in _OF_ONE:
        return (*(JavaType(name, 0, (each,)) for each in _INSIDE), JavaType(name))
    if short in _OF_TWO:
        pairs = itertools.chain(((_INSIDE[0], each) for each in (*_INSIDE, JavaType("java.lang.Object"))),
                                ((each, _INSIDE[0]) for each in _INSIDE[1:]))  # fmt: skip
        return (*(JavaType(name, 0, each) for each in pairs), JavaType(name))
    return (JavaType(name),) if name else ()


def _unsure(found: Mapping[str, JobClass], met: Sequence[Looked], look: Look) -> str:
    """The fields for which another type fits as well, as text behind a declaration; "" where there is none.

    ``met`` has the values that were in the way.
    """
    others: list[str] = []
    for each, field in [(owner, field) for owner in found.values() for field in owner.fields]:
        for other in _others(field.type):
            changed = tuple(replace(one, type=other) if one is field else one for one in each.fields)
            tried = {**found, each.name: replace(each, fields=changed)}
            fits = all(_progress(one, tried) == 1 for one in met)
            if fits and len(others) < _MOST_LOOKS and look(tried).fits:
                others.append(f"{type_text(other)} {field.name}")
    return f"; it may as well be {', '.join(others)}" if others else ""


def _others(kind: JavaType) -> Sequence[JavaType]:
    if not kind.dimensions and kind.name in _PRIMITIVES:
        return _types(Basic(kind.name))[1:]
    boxed = [name for name in _PRIMITIVES if not kind.dimensions and _types(Basic(name))[1] == kind]
    return [JavaType(name) for name in boxed]
