"""The classes of Scala that Flink's Scala API tells Kryo how to write, up to Flink 1.20, with their forms.

Source: ``AllScalaRegistrar`` of Flink, which registers some of them under the numbers 10 to 72, and Chill 0.7, whose
serializers are also those of other collections, by their names. Without the Scala API Kryo writes the fields of such a
collection, which may be the same bytes as another collection here.
"""

from __future__ import annotations

from collections.abc import Mapping

from statestore.formats.kernels import kryo_forms as forms

Form = tuple[int, int, int, int]
"""Kind, whether back references go to it, the kind's number, whether elements of a list are never null (or how many
fields there are)."""

FIRST_OF_SCALA = 10
_OPAQUE: Form = (forms.OPAQUE_FORM, 0, 0, 0)
_LIST: Form = (forms.LIST, 1, 0, forms.WITHOUT_HINT)
_JAVA_LIST: Form = (forms.LIST, 1, 0, 0)
_PAIRS: Form = (forms.PAIRS, 1, 0, 0)
_NOTHING: Form = (forms.NOTHING, 1, 0, 0)
_EMPTY: Form = (forms.EMPTY_LIST, 1, 0, 0)
_VALUE: Form = (forms.OPTIONAL, 1, 0, 0)
FIELD: Mapping[bool, Form] = {
    True: (forms.OPTIONAL, 1, 0, forms.TAKES_HINT),
    False: (forms.OPTIONAL, 1, 0, forms.NO_HINT),
}
"""A class with one field of a variable's type, by whether Kryo 2 writes it as its fields."""
_NUMBER: Mapping[str, int] = {"J": forms.LONG, "I": forms.INT, "D": forms.DOUBLE}


def _numbers(letters: str) -> Form:
    first, second = (*(_NUMBER[letter] for letter in letters), 0)[:2]
    return forms.NUMBERS, 1, 16 * first + second, 0


_IMMUTABLE, _MUTABLE = "scala.collection.immutable.", "scala.collection.mutable."
_CONVERT, _ENUMERATION = "scala.collection.convert.Wrappers$", "scala.Enumeration$"
_LATER_CONVERT = "scala.collection.convert.JavaCollectionWrappers$"  # of Scala 2.13
WRAPPERS = tuple(f"{_CONVERT}{name}Wrapper" for name in ("Seq", "Map", "JList", "JMap"))
"""Numbered classes with two fields: the object that made them, and the collection, which is shown."""
ENUMERATION = "scala.Enumeration"
VALUE: Mapping[str, Form] = {f"{_ENUMERATION}Val": (forms.VALUE_OF, 1, 0, 0)}
_ONES = ("J", "I", "D")
_TWOS = ("JJ", "JI", "JD", "IJ", "II", "ID", "DJ", "DI", "DD")

NUMBERED: tuple[tuple[str, Form], ...] = (
    *((f"{_CONVERT}{name}Wrapper", _OPAQUE) for name in ("Seq", "Iterator", "Map", "JList", "JMap")),
    ("scala.Some", _VALUE),
    ("scala.util.Left", (forms.SIDE, 1, 0, forms.WITHOUT_HINT)),
    ("scala.util.Right", (forms.SIDE, 1, 1, forms.WITHOUT_HINT)),
    (f"{_IMMUTABLE}Vector", _LIST),
    *((f"{_IMMUTABLE}Set$Set{count}", _LIST) for count in range(1, 5)),
    (f"{_IMMUTABLE}HashSet$HashTrieSet", _LIST),
    *((f"{_IMMUTABLE}Map$Map{count}", _PAIRS) for count in range(1, 5)),
    (f"{_IMMUTABLE}HashMap$HashTrieMap", _PAIRS),
    (f"{_IMMUTABLE}Range$Inclusive", _OPAQUE),
    (f"{_IMMUTABLE}NumericRange$Inclusive", _OPAQUE),
    (f"{_IMMUTABLE}NumericRange$Exclusive", _OPAQUE),
    (f"{_MUTABLE}BitSet", _LIST),
    (f"{_MUTABLE}HashMap", _PAIRS),
    (f"{_MUTABLE}HashSet", _LIST),
    (f"{_CONVERT}IterableWrapper", _VALUE),
    *((f"scala.Tuple{count}", (forms.TUPLE, 1, count, forms.WITHOUT_HINT)) for count in range(1, 23)),
    *((f"scala.Tuple1$mc{letters}$sp", _numbers(letters)) for letters in _ONES),
    *((f"scala.Tuple2$mc{letters}$sp", _numbers(letters)) for letters in _TWOS),
    ("scala.Symbol", (forms.TEXT, 1, 0, 0)),
    ("scala.reflect.ClassTag", _OPAQUE),
    ("scala.runtime.BoxedUnit", _NOTHING),
)  # fmt: skip
"""The classes from number 10 on, in their order."""

_LISTS = ("$colon$colon", "Nil$", "Queue", "Queue$EmptyQueue$", "ListSet", "ListSet$EmptyListSet$", "ListSet$Node")
_MUTABLE_LISTS = ("ArrayBuffer", "ListBuffer", "Queue", "LinkedHashSet", "TreeSet")
_MAPS = ("Map$EmptyMap$", "ListMap", "ListMap$EmptyListMap$", "ListMap$Node", "HashMap$EmptyHashMap$",
         "HashMap$HashMap1", "HashMap$HashMapCollision1", "Map$WithDefault")  # fmt: skip
_MUTABLE_MAPS = ("LinkedHashMap", "ListMap", "LongMap", "AnyRefMap", "TreeMap")
_ARRAYS = ("Ref", "Byte", "Short", "Char", "Int", "Long", "Float", "Double", "Boolean")
_ORDERINGS = ("Unit", "Boolean", "Byte", "Char", "Short", "Int", "Long", "Float", "Double", "BigInt", "BigDecimal",
              "String")  # fmt: skip

NAMED: Mapping[str, Form] = {
    **{_IMMUTABLE + name: _LIST for name in _LISTS},
    **{_MUTABLE + name: _LIST for name in _MUTABLE_LISTS},
    **{_IMMUTABLE + name: _PAIRS for name in _MAPS},
    **{_MUTABLE + name: _PAIRS for name in _MUTABLE_MAPS},
    **{f"{_IMMUTABLE}BitSet$BitSet{which}": (forms.DELTAS, 1, 0, 0) for which in "12N"},
    **{f"{_MUTABLE}WrappedArray$of{name}": (forms.WRAPPED, 1, 0, 0) for name in _ARRAYS},
    f"{_CONVERT}JSetWrapper": _LIST,
    f"{_CONVERT}JConcurrentMapWrapper": _PAIRS,
    **VALUE,
    f"{_ENUMERATION}ValueSet": (forms.ORDERED, 1, 0, 0),
    f"{_ENUMERATION}ValueOrdering$": _NOTHING,
    "scala.util.matching.Regex": (forms.TEXT, 1, 0, 0),
    f"{_IMMUTABLE}HashSet$EmptyHashSet$": _EMPTY,
    f"{_IMMUTABLE}TreeSet": (forms.ORDERED, 1, 0, 0),
    f"{_IMMUTABLE}TreeMap": (forms.PAIRS, 1, 1, 0),
}
"""The classes that are written by their names, where it is known that the Scala API is used."""

ALWAYS_NAMED: Mapping[str, Form] = {
    "scala.concurrent.duration.FiniteDuration": (forms.FINITE_DURATION, 1, 0, 0),
    "scala.Some": _VALUE,
    "scala.util.Left": (forms.SIDE, 1, 0, 0),
    "scala.util.Right": (forms.SIDE, 1, 1, 0),
    **{f"scala.Tuple{count}": (forms.TUPLE, 1, count, 0) for count in range(1, 10)},  # those of 10 sort their fields
    "scala.None$": _NOTHING,
    f"{_IMMUTABLE}Set$EmptySet$": _EMPTY,
    f"{_CONVERT[:-1]}$": _NOTHING,
    **{f"scala.math.Ordering${name}$": _NOTHING for name in _ORDERINGS},
}
"""Objects without fields, which every Kryo writes by their names alone, and classes that it writes as their fields.

With the Scala API some of them have numbers, and not these names.
"""

_ABSTRACT = ("Traversable", "Iterable", "Seq", "IndexedSeq", "LinearSeq", "Set", "Map", "SortedSet", "SortedMap")
_FINAL = frozenset(
    ["scala.Some", "scala.None$", "scala.Symbol", "scala.math.BigDecimal", "scala.math.BigInt", "scala.util.Left",
     "scala.util.Right", "scala.util.Success", "scala.util.Failure", "scala.runtime.BoxedUnit",
     "scala.concurrent.duration.FiniteDuration", f"{_IMMUTABLE}$colon$colon", f"{_IMMUTABLE}Nil$",
     f"{_IMMUTABLE}TreeMap", f"{_IMMUTABLE}TreeSet", *(f"scala.Tuple{count}" for count in range(3, 23)),
     *(name for name, _ in NUMBERED if name.endswith("$sp"))]
)  # fmt: skip
_FINAL_BEFORE_2_13 = frozenset(
    [f"{_IMMUTABLE}Vector", *(f"{_MUTABLE}{name}" for name in ("ListBuffer", "AnyRefMap", "LongMap")),
     *(f"{_MUTABLE}WrappedArray$of{name}" for name in _ARRAYS)]
)  # fmt: skip
_OPEN = frozenset(
    ["scala.Option", "scala.Product", "scala.Serializable", "scala.Equals", "scala.util.Either", "scala.util.Try",
     "scala.Tuple1", "scala.Tuple2", f"{_ENUMERATION}Value", f"{_ENUMERATION}Val", "scala.concurrent.duration.Duration",
     f"{_IMMUTABLE}List", f"{_IMMUTABLE}Queue", f"{_IMMUTABLE}ListMap", f"{_MUTABLE}Buffer",
     *(f"scala.collection.{place}{name}" for place in ("", "immutable.", "mutable.") for name in _ABSTRACT)]
)  # fmt: skip


def is_final(name: str, *, is_scala: bool) -> bool | None:
    """Whether no class extends one of Scala; None where that is not known, or differs between its releases.

    ``is_scala``: the job has Flink's Scala API, whose Scala is 2.12 (a ``Tuple3`` of 2.11 is not final).
    """
    if name in _FINAL or (name in _FINAL_BEFORE_2_13 and is_scala):
        return True
    if name in _OPEN:
        return False
    known = name in NAMED or any(name == each for each, _ in NUMBERED)
    return False if is_scala and known and name not in _FINAL_BEFORE_2_13 else None


_JAVA_LISTS = ("Seq", "MutableSeq", "MutableBuffer", "Set", "MutableSet", "Iterable")
_JAVA_MAPS = ("Map", "MutableMap", "ConcurrentMap")
AS_JAVA: Mapping[str, Form] = {
    **{f"{place}{name}Wrapper": _JAVA_LIST for name in _JAVA_LISTS for place in (_CONVERT, _LATER_CONVERT)},
    **{f"{place}{name}Wrapper": (forms.MAP, 1, 0, 0) for name in _JAVA_MAPS for place in (_CONVERT, _LATER_CONVERT)},
}
"""Collections of Scala that Java uses as its own, which every Kryo writes as such by their names."""
