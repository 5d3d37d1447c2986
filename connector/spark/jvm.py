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
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions import captured
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql.types import StructType

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError, UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR = "org.apache.spark.sql.connector."
REPLACED_WHEN_SENT = "scala.collection.generic.DefaultSerializable"
_UNDECLARED = "java.lang.reflect.UndeclaredThrowableException"

Method = TypeVar("Method", bound=Callable[..., Any])


_known: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()  # classes, methods and objects, by gateway


@dataclass(frozen=True)
class Jvm:
    """The JVM of a classic session. Each class and static method is looked up once: py4j asks the JVM each time."""

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
        """The class of a full name, to call its constructor."""
        return self._once(name, lambda: JavaClass(name, self.gateway._gateway_client))

    def static(self, name: str, method: str) -> Any:
        """A static method of a class."""
        return self._once(f"{name}.{method}()", lambda: getattr(self.kind(name), method))

    def singleton(self, name: str) -> Any:
        """The object of Scala of a full name."""
        return self._once(f"object {name}", lambda: getattr(self.kind(f"{name}$"), "MODULE$"))

    def constant(self, name: str, value: str) -> Any:
        """A value of an enumeration."""
        return self._once(f"{name}.{value}", lambda: self.static(name, "valueOf")(value))

    def _once(self, name: str, find: Callable[[], Any]) -> Any:
        found = _known.setdefault(self.gateway, {})
        if name not in found:
            found[name] = find()
        return found[name]

    def array(self, name: str, items: Iterable[Any]) -> Any:
        """An array of a class of the JVM; items may be Python objects that implement it."""
        given = list(items)
        if not given:
            return self._once(f"{name}[]", lambda: self.gateway.new_array(self.kind(name), 0))
        made = self.gateway.new_array(self.kind(name), len(given))
        put = self.static("java.lang.reflect.Array", "set")
        for position, item in enumerate(given):
            put(made, position, item)
        return made

    def set(self, items: Iterable[Any] = ()) -> Any:
        given = tuple(items)

        def make() -> Any:
            made = self.kind("java.util.HashSet")()
            for item in given:
                made.add(item)
            return made

        return self._once(f"set of {', '.join(map(str, given))}", make)

    def map(self, items: dict[str, str] | None = None) -> Any:
        made = self.kind("java.util.HashMap")()
        for name, value in (items or {}).items():
            made.put(name, value)
        return made

    def struct(self, schema: StructType) -> Any:
        """The schema as Spark's own class."""
        return self.static("org.apache.spark.sql.types.DataType", "fromJson")(schema.json())

    def optional_long(self, number: int | None) -> Any:
        name = "java.util.OptionalLong"
        return self.static(name, "empty")() if number is None else self.static(name, "of")(number)

    def references(self, names: Iterable[str]) -> Any:
        """Columns as references."""
        column = self.static(CONNECTOR + "expressions.Expressions", "column")
        return self.array(CONNECTOR + "expressions.NamedReference", [column(name) for name in names])

    def none(self) -> Any:
        return self.singleton("scala.None")

    def some(self, value: Any) -> Any:
        return self.kind("scala.Some")(value)


def schema_of(struct: Any) -> StructType:
    """A schema of the JVM as PySpark's class."""
    return StructType.fromJson(json.loads(struct.json()))


def listen(jvm: Jvm) -> None:
    """Let the JVM call Python objects, and let their errors reach it as exceptions of its own. Safe to call twice."""
    start: Callable[..., None] = ensure_callback_server_started
    start(jvm.gateway)
    jvm.gateway.python_parameters.propagate_java_exceptions = True


class JavaObject:
    """A Python object that the JVM calls. Subclasses name the interfaces: ``class Java: implements = [...]``."""

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm

    if not TYPE_CHECKING:  # a type checker would take every name for a method

        def __getattr__(self, name: str) -> Callable[..., Any]:
            """Refuse a method that no known release of Spark asks for."""
            if name.startswith("_"):
                raise AttributeError(name)

            def refuse(*given: Any) -> Any:
                error = UnsupportedError(
                    ErrorCode.UNSUPPORTED_SPARK,
                    f"Spark {self._jvm.spark.version} asks {type(self).__name__} for {name}, which catalogs of "
                    "statestore do not answer; use statestore.sql(path, query, spark=spark)",
                )
                raise thrown(analysis_exception(self._jvm, error))

            return refuse

    def identity(self) -> tuple[Any, ...]:
        """Return what makes two objects equal for Spark, which looks for equal plans in its cache."""
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


def entries(java_map: Any) -> dict[str, str]:
    """A map of texts of the JVM. Iterators are avoided: py4j learns their end from an exception."""
    return {str(name): str(java_map.get(name)) for name in java_map.keySet().toArray()}
