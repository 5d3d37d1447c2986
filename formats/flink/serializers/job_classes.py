"""Classes of a job, as a user declares them or their class files have them: what Kryo needs to read their objects."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class JavaType:
    """The declared type of a field: ``name`` is a primitive (``int``), a class by its binary name
    (``java.util.List``, ``shop.Order$Item``), or "" for a variable of a type, whose class is ``java.lang.Object``.

    ``dimensions`` counts those of an array. ``arguments`` are the arguments of a generic type, () for a raw one.
    ``variable`` is the name of the variable of a type, "?" of a wildcard, "" for any other type; ``name`` is then the
    class that bounds it.
    """

    name: str
    dimensions: int = 0
    arguments: tuple[JavaType, ...] = ()
    variable: str = ""


@dataclass(frozen=True)
class JobField:
    """A field of an object that is neither static nor transient.

    ``is_synthetic``: the compiler made it, such as the outer object of an inner class. Kryo leaves such a field out,
    but in jobs that have Flink's Scala API, whose Kryo is that of Chill.

    A lazy val of Scala has its value if the field ``bitmap`` of the same class has the bit ``bit``; that field is not
    shown.
    """

    name: str
    type: JavaType
    is_synthetic: bool = False
    bitmap: str = ""
    bit: int = 0


@dataclass(frozen=True)
class JobClass:
    """A class of a job: its own fields, in no particular order, and the class that it extends ("" for none).

    ``constants`` are those of an enum in their order; None: it is no enum. An ``object`` of Scala is an enum of itself,
    and its ``fields`` are those of the classes above it, too; one that extends ``Enumeration`` has its values by their
    IDs, "" for an ID that none has. ``is_final``: no other class extends it, so
    that Kryo does not write which class an object in a field of this type has. An interface or an abstract class has
    ``is_abstract``. ``parameters`` are the names of its type variables, ``superclass_arguments`` the types that it
    gives to those of the class that it extends, () where it gives none.
    """

    name: str
    fields: tuple[JobField, ...] = ()
    superclass: str = ""
    constants: tuple[str, ...] | None = None
    is_final: bool = False
    is_abstract: bool = False
    is_record: bool = False
    parameters: tuple[str, ...] = ()
    superclass_arguments: tuple[JavaType, ...] = ()
