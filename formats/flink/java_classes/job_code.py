"""The classes of a job by name, as its jars and folders have them: what Kryo needs to read their objects.

Nothing is loaded or run. A class is looked up when a value names it, and is known from then on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.flink.java_classes.class_file import (
    ABSTRACT,
    ENUM,
    FINAL,
    INTERFACE,
    STATIC,
    SYNTHETIC,
    TRANSIENT,
    ClassFile,
    read_class_file,
)
from statestore.formats.flink.java_classes.class_places import ClassPlace, find_class_file
from statestore.formats.flink.java_classes.class_signatures import parameters_of, type_of_field
from statestore.formats.flink.java_classes.enum_constants import constants_of
from statestore.formats.flink.java_classes.scala_api import has_scala_api
from statestore.formats.flink.java_classes.scala_classes import (
    ENUMERATION,
    is_object,
    object_name,
    values_of,
    with_lazy,
)
from statestore.formats.flink.java_classes.zip_entries import ZipDirectory
from statestore.formats.flink.serializers.job_classes import JavaType, JobClass, JobField

_OF_KRYO = "com.esotericsoftware.kryo."
_OF_ANNOTATIONS = f"L{_OF_KRYO.replace('.', '/')}"
_WITH_OWN_FORM = ("java.util.Collection", "java.util.List", "java.util.Set", "java.util.Map", "java.util.Queue",
                  "java.util.Deque", "java.util.SortedMap", "java.util.SortedSet", "java.util.NavigableMap",
                  "java.util.NavigableSet", "java.util.concurrent.ConcurrentMap")  # fmt: skip
"""Interfaces whose classes Kryo writes in other ways than as their fields."""
_LIBRARIES = ("java.", "javax.", "jdk.", "sun.", "scala.")
"""Packages of which no class is looked up: Kryo has forms of its own for theirs."""
_OF_COLLECTIONS = "scala.collection."
"""Package whose traits make a class a collection, for which Chill has other forms than fields."""
_ENUM, _RECORD = "java.lang.Enum", "java.lang.Record"
_WITHOUT_FIELDS = ("java.lang.Object", "java.lang.Number", _ENUM, _RECORD, ENUMERATION,
                   *(f"scala.runtime.AbstractFunction{count}" for count in range(23)))  # fmt: skip
"""Classes of the JDK and of Scala that say nothing of the form of their subclasses."""
_MOST_ABOVE = 256
"""Classes above one another; real ones have less than 20."""
_MOST_REACHED = 1 << 12
"""Classes that one class leads to."""

KnownClasses = tuple[tuple[str, ...], dict[str, JobClass], tuple[bool, ...]]
"""Names that were looked up in vain, the classes that values were found to have, and whether the job has Flink's Scala
API, where that was looked up."""


@dataclass(frozen=True)
class JobCode:
    """The jars and folders that a user gave, and results of look-ups in them.

    ``found`` are class files that were read, None where there is none; ``classes`` are those of a form that is known;
    ``used`` are those that values were found to have, ``api`` whether the places have Flink's Scala API, once known.
    """

    places: tuple[ClassPlace, ...] = ()
    directories: dict[ClassPlace, ZipDirectory] = field(default_factory=dict, repr=False, compare=False)
    found: dict[str, ClassFile | None] = field(default_factory=dict, repr=False, compare=False)
    classes: dict[str, JobClass | None] = field(default_factory=dict, repr=False, compare=False)
    used: dict[str, JobClass] = field(default_factory=dict, repr=False, compare=False)
    api: list[bool] = field(default_factory=list, repr=False, compare=False)

    @property
    def has_scala_api(self) -> bool:
        """Whether the places have Flink's Scala API, or classes that refer to it. Raises as `class_named`."""
        if not self.api:
            self.api.append(has_scala_api(self.places, self.directories))
        return self.api[0]

    def __reduce__(self) -> tuple[object, ...]:
        return JobCode, (self.places,)

    def __bool__(self) -> bool:
        return bool(self.places)

    def __str__(self) -> str:
        return ", ".join(map(str, self.places))

    @property
    def known(self) -> KnownClasses:
        """Results of look-ups for another process."""
        missing = tuple(name for name, found in dict(self.classes).items() if found is None)
        return missing, dict(self.used), tuple(self.api[:1])

    def learn(self, known: KnownClasses) -> None:
        """Take over results of look-ups in the same places."""
        self.classes.update(dict.fromkeys(known[0]))
        self.classes.update(known[1])
        self.used.update(known[1])
        self.api.extend(known[2])

    def class_named(self, name: str) -> JobClass | None:
        """The class of a binary name; None where no place has it or a class above it, and where Kryo writes its objects
        in another form than that of an enum or of their fields, or may do so.

        Raises InvalidInputError INVALID_OPTION for a damaged jar or class file.
        """
        if name not in self.classes:
            file = self._file(name)
            has_own_form = file is None or self._has_own_form(file)
            self.classes[name] = None if file is None or has_own_form else self._described(file)
        return self.classes[name]

    def _described(self, file: ClassFile) -> JobClass | None:
        """The class that a class file describes; an ``object`` of Scala with the fields of all classes above it."""
        found = described(file)
        if found is None or not is_object(file):
            return found
        above, fields = found, list(found.fields)
        while above.superclass not in ("", *_WITHOUT_FIELDS):
            next_above = self.class_named(above.superclass)
            if next_above is None:
                return None
            above = next_above
            fields += above.fields
        return replace(found, fields=tuple(fields))

    def enum_of(self, name: str) -> JobClass | None:
        """The enum of a class: itself, or of one of a constant with a body the enum that it extends."""
        found = self.class_named(name)
        if found is not None and found.constants is None and found.superclass not in ("", name):
            found = self.class_named(found.superclass)
        return None if found is None or found.constants is None else found

    def reached_from(self, name: str) -> Iterator[JobClass]:
        """The class of a name and the classes that its objects lead to by their types, each once, but for those of
        libraries: superclasses, types of fields and their arguments.

        Subclasses are not among them: values name these. Of an enum no fields are written.
        """
        seen, left = {name}, [name]
        while left:
            found = self.class_named(left.pop())
            if found is None:
                continue
            yield found
            if found.constants is not None:
                continue
            for each in _named_in(found):
                if each not in seen and not each.startswith(_LIBRARIES) and len(seen) < _MOST_REACHED:
                    seen.add(each)
                    left.append(each)

    def reason(self, name: str) -> str:
        """Why a class is not read, for errors."""
        try:
            file = self._file(name)
        except InvalidInputError as error:  # a task that does not reach the jar
            return error.message
        if file is None:
            return f"{self} has no class {name}"
        if self._has_own_form(file):
            return f"Kryo may write objects of {name} of {self} in a form of their own"
        if file.flags & ENUM:
            return f"the code of {name} in {self} does not say for sure in which order its constants are"
        if is_object(file):
            return f"the code of {name} in {self} does not say for sure which IDs and names its values have"
        return f"a field of {name} of {self} has a class that {self} does not have, or whose form is not known"

    def _file(self, name: str) -> ClassFile | None:
        if name.startswith(_LIBRARIES):
            return None
        if name not in self.found:
            stored = find_class_file(self.places, name, self.directories)
            file = None if stored is None else read_class_file(*stored)
            if file is not None and file.name != name:
                assert stored is not None
                if file.name.lower() != name.lower():  # a folder of a system that does not distinguish case
                    raise InvalidInputError(
                        ErrorCode.INVALID_OPTION,
                        f"option classes: {stored[1]}: found class {file.name}, expected {name}; name the folder or "
                        "jar in which the packages are folders",
                    )
                file = None
            self.found[name] = file
        return self.found[name]

    def _has_own_form(self, file: ClassFile) -> bool:
        """Whether Kryo may write objects in another form than that of an enum or of their fields.

        The job's annotations of Kryo and its interface ``KryoSerializable`` say so, and collections have a form. A
        class above that is nowhere may have fields, too.
        """
        seen, left = {file.name}, [file]
        while left:
            each = left.pop()
            fields = each.fields
            annotations = (*each.annotations, *(one for of_field in fields for one in of_field.annotations))
            if any(one.startswith(_OF_ANNOTATIONS) for one in annotations):
                return True
            above = [one for one in (each.superclass, *each.interfaces) if one and one not in seen]
            if any(one.startswith((_OF_KRYO, _OF_COLLECTIONS)) or one in _WITH_OWN_FORM for one in above):
                return True
            seen.update(above)
            if len(seen) > _MOST_ABOVE:
                return True
            found = {one: self._file(one) for one in above}
            if each.superclass in above and each.superclass not in _WITHOUT_FIELDS and found[each.superclass] is None:
                return True
            left += [one for one in found.values() if one is not None]
        return False


def described(file: ClassFile) -> JobClass | None:
    """The class that a class file describes, None where its constants or the type of a field are not known."""
    bounds, arguments = parameters_of(file.signature)
    fields = []
    for each in file.fields:
        if each.flags & (STATIC | TRANSIENT):
            continue
        kind = type_of_field(each.descriptor, each.signature, bounds)
        if kind is None:
            return None
        fields.append(JobField(each.name, kind, bool(each.flags & SYNTHETIC)))
    constants = None
    if file.flags & ENUM and file.superclass == _ENUM:
        constants = constants_of(file)
        if constants is None:
            return None
    if is_object(file):
        constants = values_of(file) if file.superclass == ENUMERATION else (object_name(file.name),)
        if constants is None:
            return None
    known = with_lazy(file, fields)
    if known is None:
        return None
    return JobClass(
        file.name,
        known,
        "" if file.superclass == _WITHOUT_FIELDS[0] else file.superclass,
        constants,
        bool(file.flags & FINAL),
        bool(file.flags & (ABSTRACT | INTERFACE)),
        file.superclass == _RECORD,
        tuple(bounds),
        arguments,
    )


def _named_in(found: JobClass) -> Iterator[str]:
    """The classes that a class names."""
    if found.superclass:
        yield found.superclass
    left = [each.type for each in found.fields] + list(found.superclass_arguments)
    while left:
        kind: JavaType = left.pop()
        if kind.name:
            yield kind.name
        left += kind.arguments
