"""Classes of a job as a user declares them, in the words of Java: ``class<String sku, int qty, List<String> tags>``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from statestore.formats.flink.layouts import kryo_scala as scala
from statestore.formats.flink.layouts.kryo_classes import is_public
from statestore.formats.flink.layouts.kryo_objects import TUPLES
from statestore.formats.flink.serializers.job_classes import JavaType, JobClass, JobField

CLASS = "class:"
"""The word in front of a class that is declared, where the name of a state stands otherwise."""
PRIMITIVES = ("boolean", "byte", "char", "short", "int", "long", "float", "double")
_EXPECTED = "expected class<String sku, int qty, List<String> tags> with all fields of the class, or enum<RED, GREEN>"
_FORM = re.compile(r"(?:(final|abstract)\s+)?(class|record|interface|enum)\b\s*", re.IGNORECASE)
_EXTENDS = re.compile(r"\s*extends\s+(.+)", re.DOTALL)
_BODY = re.compile(r"\s*\{\s*\}$")
_TOKEN = re.compile(r"\s*([^\s<>,\[\]?]+|[<>,\[\]?])")
_MOST_NESTED = 32
_PACKAGES = {
    "java.lang.": ("Boolean", "Byte", "CharSequence", "Character", "Comparable", "Double", "Enum", "Float", "Integer",
                   "Iterable", "Long", "Number", "Object", "Short", "String", "StringBuffer", "StringBuilder"),
    "java.io.": ("Serializable",),
    "java.math.": ("BigDecimal", "BigInteger", "RoundingMode"),
    "java.net.": ("URI", "URL"),
    "java.time.": ("DayOfWeek", "Duration", "Instant", "LocalDate", "LocalDateTime", "LocalTime", "Month", "MonthDay",
                   "OffsetDateTime", "OffsetTime", "Period", "Year", "YearMonth", "ZoneId", "ZoneOffset",
                   "ZonedDateTime"),
    "java.util.": ("ArrayDeque", "ArrayList", "BitSet", "Collection", "Currency", "Date", "Deque", "EnumMap", "EnumSet",
                   "HashMap", "HashSet", "LinkedHashMap", "LinkedHashSet", "LinkedList", "List", "Locale", "Map",
                   "NavigableMap", "NavigableSet", "Optional", "OptionalDouble", "OptionalInt", "OptionalLong",
                   "PriorityQueue", "Queue", "Set", "SortedMap", "SortedSet", "TimeZone", "TreeMap", "TreeSet", "UUID",
                   "Vector"),
    "java.util.concurrent.": ("ConcurrentHashMap", "ConcurrentMap"),
    "java.util.concurrent.atomic.": ("AtomicBoolean", "AtomicInteger", "AtomicLong", "AtomicReference"),
}  # fmt: skip
_KNOWN = {name: package + name for package, names in _PACKAGES.items() for name in names}


def class_of(named: str, text: str) -> JobClass:
    """The class that a user declares. Raises ValueError with what was found and expected.

    ``named`` is its name, with the variables of a generic class: ``shop.Box<T>``. A constant of an enum that has a body
    in the job's code is written with one: ``enum<RED, GREEN {}>``.
    """
    class_name, parameters = _name_of(named)
    if is_public(class_name):
        raise ValueError(f"declares class {class_name}, whose form is known; leave it out")
    form = _FORM.match(text.strip())
    if form is None:
        raise _wrong(text, class_name)
    kind, rest = form[2].lower(), text.strip()[form.end() :]
    word = (form[1] or "").lower()
    if kind == "interface":
        if rest or word:
            raise _wrong(text, class_name)
        return JobClass(class_name, is_abstract=True, parameters=parameters)
    inside, behind = _inside(rest, text, class_name)
    if kind == "enum":
        if behind or word or parameters:
            raise _wrong(text, class_name)
        return _enum(class_name, text, inside)
    superclass = JavaType("")
    if behind:
        found = _EXTENDS.fullmatch(behind)
        if found is None or kind == "record":
            raise _wrong(text, class_name)
        superclass = _types(found[1], class_name, parameters)
    fields = tuple(_field(each, class_name, parameters) for each in _parts(inside))
    names = [each.name for each in fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"has field {twice} twice for class {class_name}; {_EXPECTED}")
    return JobClass(
        class_name, fields, superclass.name, None, word == "final" or kind == "record", word == "abstract",
        kind == "record", parameters, superclass.arguments,
    )  # fmt: skip


def check_declared(classes: Iterable[JobClass]) -> None:
    """Raise ValueError for a class that a field has, or another class extends, and that is not declared itself.

    Without it, it is not known whether the field tells which class its object has.
    """
    declared = {each.name: each for each in classes}
    for each in declared.values():
        if each.superclass and each.superclass not in declared:
            raise ValueError(f"has no class {each.superclass}, which class {each.name} extends; declare it too")
        if each.superclass and _is_endless(each, declared):
            raise ValueError(f"has class {each.name} among the classes that it extends; expected another one")
        for field in each.fields:
            for name in _named(field.type):
                if name not in declared and name not in TUPLES and not _is_of_a_library(name):
                    raise ValueError(
                        f"has no class {name}, which field {field.name} of class {each.name} has; declare it too, as "
                        "class<...>, final class<...>, interface or enum<...>"
                    )


def _is_of_a_library(name: str) -> bool:
    """Whether the name is one of `is_of_java`, or of a class of Scala of which Kryo's objects are known."""
    return is_of_java(name) or scala.is_final(name, is_scala=True) is not None


def is_of_java(name: str) -> bool:
    """Return whether the name is that of a class of the JDK, or of a primitive type, or none."""
    return not name or name in PRIMITIVES or name.startswith("java.")


def declared_text(found: JobClass) -> str:
    """The declaration of a class, as `class_of` reads it. It does not tell which constants of an enum have a body."""
    if found.constants is not None:
        return f"enum<{', '.join(found.constants)}{'' if found.is_final else ' {}'}>"
    inside = ", ".join(f"{type_text(each.type)} {each.name}" for each in found.fields)
    return f"{'final ' if found.is_final else ''}class<{inside}>"


def type_text(kind: JavaType) -> str:
    """A type as Java writes it, without packages of the JDK."""
    name = kind.variable if kind.variable not in ("", "?") else kind.name or "Object"
    short = name.rpartition(".")[2]
    name = short if _KNOWN.get(short) == name else name
    arguments = f"<{', '.join(map(type_text, kind.arguments))}>" if kind.arguments else ""
    return f"{'? extends ' if kind.variable == '?' else ''}{name}{arguments}{'[]' * kind.dimensions}"


def _is_endless(one: JobClass, declared: dict[str, JobClass]) -> bool:
    seen: set[str] = set()
    name = one.name
    while name and name not in seen:
        seen.add(name)
        name = declared[name].superclass if name in declared else ""
    return bool(name)


def _named(kind: JavaType) -> Iterable[str]:
    yield kind.name
    for each in kind.arguments:
        yield from _named(each)


def _wrong(text: str, class_name: str) -> ValueError:
    return ValueError(f"has {text!r} for class {class_name}; {_EXPECTED}")


def _name_of(named: str) -> tuple[str, tuple[str, ...]]:
    """The name of a class, and its variables."""
    name, sign, rest = named.partition("<")
    name, variables = name.strip(), rest.strip()
    parameters = tuple(each.strip() for each in variables.removesuffix(">").split(",")) if sign else ()
    if not is_class_name(name) or (sign and not variables.endswith(">")) or not all(map(_is_name, parameters)):
        raise ValueError(f"names class {named!r}, which no class of Java has as its name; {_EXPECTED}")
    return name, parameters


def is_class_name(name: str) -> bool:
    """Return whether a class of Java may have this name."""
    return all(map(_is_name, name.split(".")))


def _is_name(name: str) -> bool:
    return name.replace("$", "_").isidentifier()


def _inside(rest: str, text: str, class_name: str) -> tuple[str, str]:
    """The text between the first < and its >, and the text behind."""
    depth = 0
    if rest.startswith("<"):
        for place, letter in enumerate(rest):
            depth += (letter == "<") - (letter == ">")
            if depth == 0:
                return rest[1:place], rest[place + 1 :].strip()
    raise _wrong(text, class_name)


def _parts(inside: str) -> list[str]:
    """The parts between commas that are not within < and >."""
    parts, depth = [""], 0
    for letter in inside:
        depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [] if len(parts) == 1 and not parts[0].strip() else parts


def _enum(class_name: str, text: str, inside: str) -> JobClass:
    written = [each.strip() for each in inside.split(",")]
    constants = tuple(_BODY.sub("", each) for each in written)
    if not all(map(_is_name, constants)):
        raise _wrong(text, class_name)
    if len(set(constants)) < len(constants):
        twice = next(each for each in constants if constants.count(each) > 1)
        raise ValueError(f"has constant {twice} twice for class {class_name}; {_EXPECTED}")
    return JobClass(class_name, constants=constants, is_final=constants == tuple(written))


def _field(text: str, class_name: str, parameters: tuple[str, ...]) -> JobField:
    kind, _, name = text.strip().rpartition(" ")
    if not kind or not _is_name(name) or name == "class":
        raise ValueError(
            f"has field {text.strip()!r} for class {class_name}; expected its type and its name, as int qty"
        )
    return JobField(name, _types(kind, class_name, parameters), re.fullmatch(r"this\$[0-9]+", name) is not None)


def _types(text: str, class_name: str, parameters: tuple[str, ...]) -> JavaType:
    tokens: list[str] = []
    at, text = 0, text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _no_type(text, class_name)
        tokens.append(found[1])
        at = found.end()
    kind, behind = _type(tokens, 0, parameters, text, class_name, 0)
    if behind != len(tokens):
        raise _no_type(text, class_name)
    return kind


def _no_type(text: str, class_name: str) -> ValueError:
    return ValueError(f"has type {text!r} for class {class_name}; expected one of Java, as List<String> or int[]")


def _type(
    tokens: list[str], at: int, parameters: tuple[str, ...], text: str, class_name: str, depth: int
) -> tuple[JavaType, int]:
    """The type of the tokens from a place on, and the place behind it."""
    left = [*tokens[at : at + 3], "", "", ""]
    if left[0] == "?" and depth:
        if left[1] != "extends":
            return JavaType("java.lang.Object", variable="?"), at + (3 if left[1] == "super" else 1)
        bound, at = _type(tokens, at + 2, parameters, text, class_name, depth)
        return JavaType(bound.name, bound.dimensions, bound.arguments, "?"), at
    name, at = left[0], at + 1
    if depth > _MOST_NESTED or not is_class_name(name):
        raise _no_type(text, class_name)
    arguments: list[JavaType] = []
    if at < len(tokens) and tokens[at] == "<":
        while tokens[at] != ">":
            found, at = _type(tokens, at + 1, parameters, text, class_name, depth + 1)
            arguments.append(found)
            if at >= len(tokens) or tokens[at] not in ",>":
                raise _no_type(text, class_name)
        at += 1
    dimensions = 0
    while tokens[at : at + 2] == ["[", "]"]:
        dimensions, at = dimensions + 1, at + 2
    if name in parameters:
        return JavaType("", dimensions, (), name), at
    if name in PRIMITIVES and depth and not dimensions:
        raise _no_type(text, class_name)
    return JavaType(_KNOWN.get(name, name), dimensions, tuple(arguments)), at
