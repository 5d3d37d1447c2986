"""The catalog plugin that Spark SQL asks: tables, namespaces, and moments of tables.

py4j calls a method for all its overloads. Spark 4.3 asks for more methods than 4.1 does; none of them does harm there.
"""

from __future__ import annotations

from typing import Any

from statestore.connector.options import OPTIONS
from statestore.connector.spark.catalog.moment import asked_of, query_for
from statestore.connector.spark.catalog.place import DEFAULT, Place
from statestore.connector.spark.jvm import CONNECTOR, JavaObject, Jvm, answering, texts, thrown
from statestore.connector.spark.planner.planned_table import Face, PlannedTable
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ReadOnlyError
from statestore.formats.state_table import StateTable

_ANALYSIS = "org.apache.spark.sql.catalyst.analysis."
READ_OPTIONS = sorted(option.name for option in OPTIONS if "read" in option.uses and "AsOf" not in option.name)
ZONE_CONF = "spark.sql.session.timeZone"


class StateCatalog(JavaObject):
    """The tables of a place as a catalog of one session."""

    def __init__(self, jvm: Jvm, name: str, place: Place) -> None:
        super().__init__(jvm)
        self._name = name
        self._place = place

    @property
    def place(self) -> Place:
        return self._place

    def initialize(self, name: str, options: Any) -> None:
        """Spark calls this for catalogs that it makes by itself."""

    def name(self) -> str:
        return self._name

    def defaultNamespace(self) -> Any:
        return self._texts([DEFAULT])

    def capabilities(self) -> Any:
        return self._jvm.set()

    def tableStateOptionKeys(self) -> Any:
        """The options of readers that Spark 4.3 passes to `loadTable`."""
        return self._jvm.set(READ_OPTIONS)

    def changelogStateOptionKeys(self) -> Any:
        return self._jvm.set()

    def useNullableQuerySchema(self) -> bool:
        return True

    # Tables

    @answering
    def listTables(self, namespace: Any) -> Any:
        found = self._place.tables(texts(namespace))
        if found is None:
            raise thrown(self._jvm.kind(_ANALYSIS + "NoSuchNamespaceException")(namespace))
        of = self._jvm.kind(CONNECTOR + "catalog.Identifier").of
        return self._jvm.array(CONNECTOR + "catalog.Identifier", [of(namespace, name) for name in found])

    @answering
    def listTableSummaries(self, namespace: Any) -> Any:
        of = self._jvm.kind(CONNECTOR + "catalog.TableSummary").of
        summaries = [of(identifier, "MANAGED") for identifier in self.listTables(namespace)]
        return self._jvm.array(CONNECTOR + "catalog.TableSummary", summaries)

    @answering
    def loadTable(self, identifier: Any, *given: Any) -> PlannedTable:
        asked = asked_of(given)
        found = self._place.find(self._parts(identifier))
        if found is None:
            raise self._missing(identifier)
        zone = str(self._jvm.spark.conf.get(ZONE_CONF))
        table = found.table.pin()
        query = query_for(found.mode, asked, zone)
        table.splits(query)  # a version or moment that is not kept is reported with the statement
        return PlannedTable(self._jvm, Face(f"{self._name}.{found.name}", table, query))

    @answering
    def tableExists(self, identifier: Any) -> bool:
        return self._place.find(self._parts(identifier)) is not None

    def invalidateTable(self, identifier: Any) -> None:
        """Nothing is cached here."""

    # Namespaces

    @answering
    def listNamespaces(self, *parents: Any) -> Any:
        parent = texts(parents[0]) if parents else ()
        names = [] if parent else self._place.namespaces()
        made = self._jvm.gateway.new_array(self._jvm.kind("java.lang.String"), len(names), 1)
        for position, name in enumerate(names):
            made[position] = self._texts([name])
        return made

    @answering
    def namespaceExists(self, namespace: Any) -> bool:
        parts = texts(namespace)
        return not parts or self._place.tables(parts) is not None

    @answering
    def loadNamespaceMetadata(self, namespace: Any) -> Any:
        if not self.namespaceExists(namespace):
            raise thrown(self._jvm.kind(_ANALYSIS + "NoSuchNamespaceException")(namespace))
        return self._jvm.map({"location": self._place.path})

    @answering
    def createNamespace(self, namespace: Any, metadata: Any) -> None:
        raise self._fixed("CREATE NAMESPACE")

    @answering
    def alterNamespace(self, namespace: Any, *changes: Any) -> None:
        raise self._fixed("ALTER NAMESPACE")

    @answering
    def dropNamespace(self, namespace: Any, cascade: bool) -> bool:
        raise self._fixed("DROP NAMESPACE")

    def _fixed(self, statement: str) -> ReadOnlyError:
        return ReadOnlyError(
            ErrorCode.READ_ONLY, f"{statement}: namespaces of {self._name} are its keyed stores, which Python makes"
        )

    def _missing(self, identifier: Any) -> Exception:
        return thrown(self._jvm.kind(_ANALYSIS + "NoSuchTableException")(identifier))

    def _parts(self, identifier: Any) -> tuple[str, ...]:
        return (*texts(identifier.namespace()), str(identifier.name()))

    def _texts(self, names: list[str]) -> Any:
        made = self._jvm.gateway.new_array(self._jvm.kind("java.lang.String"), len(names))
        for position, name in enumerate(names):
            made[position] = name
        return made

    class Java:
        implements = (CONNECTOR + "catalog.TableCatalog", CONNECTOR + "catalog.SupportsNamespaces")




