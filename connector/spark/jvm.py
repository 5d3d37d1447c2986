"""Python objects that Spark's JVM calls, and JVM objects made for it, through py4j.

Spark's interfaces are implemented by Python classes, and py4j calls them by the name of the method, for overloads and
default methods, too. An object that Spark sends to executors within a plan is sent as null or as an object of the JVM:
Java's serialization asks `writeReplace`, which an interface of Scala's library lets a proxy have.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions import captured
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql.types import DataType, StructType

from statestore.formats.errors import StateStoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR = "org.apache.spark.sql.connector."
REPLACED_WHEN_SENT = "scala.collection.generic.DefaultSerializable"
_UNDECLARED = "java.lang.reflect.UndeclaredThrowableException"

Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True)
class Jvm:
    """The JVM of a classic session."""

    spark: SparkSession

    @property
    def gateway(self) -> Any:
        context: Any = self.spark.sparkContext
        return context._gateway

    @property
    def session(self) -> Any:
        session: Any = self.spark
        return session._jsparkSession

    def kind(self, name: str) -> Any:
        """The class of a full name, to call its constructor or static methods."""
        found = self.gateway.jvm
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def singleton(self, name: str) -> Any:
        """The object of Scala of a full name."""
        return getattr(self.kind(f"{name}$"), "MODULE$")

    def array(self, name: str, items: Iterable[Any]) -> Any:
        """An array of a class of the JVM; items may be Python objects that implement it."""
        given = list(items)
        made = self.gateway.new_array(self.kind(name), len(given))
        put = self.kind("java.lang.reflect.Array").set
        for position, item in enumerate(given):
            put(made, position, item)
        return made

    def set(self, items: Iterable[Any] = ()) -> Any:
        made = self.kind("java.util.HashSet")()
        for item in items:
            made.add(item)
        return made

    def map(self, items: dict[str, str] | None = None) -> Any:
        made = self.kind("java.util.HashMap")()
        for name, value in (items or {}).items():
            made.put(name, value)
        return made

    def struct(self, schema: StructType) -> Any:
        """The schema as Spark's own class."""
        return self.kind("org.apache.spark.sql.types.DataType").fromJson(schema.json())

    def optional_long(self, number: int | None) -> Any:
        kind = self.kind("java.util.OptionalLong")
        return kind.empty() if number is None else kind.of(number)

    def none(self) -> Any:
        return self.singleton("scala.None")

    def some(self, value: Any) -> Any:
        return self.kind("scala.Some")(value)


def schema_of(struct: Any) -> StructType:
    """A schema of the JVM as PySpark's class."""
    return StructType.fromJson(json.loads(struct.json()))


def data_type_of(kind: Any) -> DataType:
    """A type of the JVM as PySpark's class."""
    whole = {"name": "column", "type": json.loads(kind.json()), "nullable": True, "metadata": {}}
    return StructType.fromJson({"type": "struct", "fields": [whole]}).fields[0].dataType


def listen(jvm: Jvm) -> None:
    """Let the JVM call Python objects, and let their errors reach it as exceptions of its own. Safe to call twice."""
    start: Callable[..., None] = ensure_callback_server_started
    start(jvm.gateway)
    jvm.gateway.python_parameters.propagate_java_exceptions = True


class JavaObject:
    """A Python object that the JVM calls. Subclasses name the interfaces: ``class Java: implements = [...]``."""

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm

    def identity(self) -> tuple[Any, ...]:
        """What makes two objects equal for Spark, which looks for equal plans in its cache."""
        return (id(self),)

    def toString(self) -> str:
        return f"{type(self).__name__}{self.identity()}"

    def hashCode(self) -> int:
        number = hash(self.toString()) & 0xFFFFFFFF
        return number - (1 << 32) if number >> 31 else number

    def equals(self, other: Any) -> bool:
        """Compare by text: py4j passes the other object as one of the JVM, which can be asked for nothing else."""
        return other is self or (other is not None and str(other.toString()) == self.toString())


def answering(method: Method) -> Method:
    """Turn this package's errors into Spark's AnalysisException, with their code as its error class."""

    @functools.wraps(method)
    def answer(self: Any, *given: Any) -> Any:
        try:
            return method(self, *given)
        except StateStoreError as error:
            raise thrown(analysis_exception(self._jvm, error)) from None

    return answer  # type: ignore[return-value]


def analysis_exception(jvm: Jvm, error: StateStoreError) -> Any:
    none = jvm.none()
    parameters = jvm.singleton("scala.collection.immutable.Map").empty()
    context = jvm.array("org.apache.spark.QueryContext", ())
    kind = jvm.kind("org.apache.spark.sql.AnalysisException")
    return kind(str(error), none, none, none, jvm.some(str(error.code)), parameters, context)


def thrown(exception: Any) -> Py4JJavaError:
    """The error with which a Python object throws an exception of the JVM."""
    return Py4JJavaError("", exception)


def show_undeclared() -> Callable[[], None]:
    """Let PySpark report an exception that a Python object threw, though its interface in Java does not declare it.

    Java wraps such an exception in another one. Returns the function that reverts this.
    """
    patched: Any = captured
    convert = patched.convert_exception

    def unwrapped(error: Any) -> Any:
        cause = error
        for _ in range(8):
            if cause is None or cause.getClass().getName() != _UNDECLARED:
                break
            cause = cause.getCause()
        return convert(error if cause is None else cause)

    patched.convert_exception = unwrapped

    def undo() -> None:
        if patched.convert_exception is unwrapped:
            patched.convert_exception = convert

    return undo


def texts(array: Any) -> tuple[str, ...]:
    """An array of texts of the JVM."""
    return tuple(str(item) for item in array)
