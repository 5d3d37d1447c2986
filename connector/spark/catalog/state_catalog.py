"""The catalog plugin that Spark SQL asks: tables, namespaces, and moments of tables.

py4j calls a method for all its overloads. Spark 4.3 asks for more methods than 4.1 does; none of them does harm there.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark.sql.types import StructType

from statestore.catalog.catalog import connect
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.warehouse import rows_spec
from statestore.connector.options import OPTIONS
from statestore.connector.spark.catalog.moment import Asked, asked_of, change_query, pinned, query_for
from statestore.connector.spark.catalog.place import DEFAULT, Named, Place, Statements
from statestore.connector.spark.catalog.table_definition import (
    Definition,
    check_query,
    create_store,
    created_target,
    definition_of,
    properties_of,
)
from statestore.connector.spark.catalog.written_table import (
    DeletableTable,
    RowLevelTable,
    StagedTable,
    Target,
    TruncatableTable,
    WrittenTable,
    target_of,
    whole_rows,
)
from statestore.connector.spark.jvm import CONNECTOR, Jvm, answering, entries, schema_of, texts, thrown
from statestore.connector.spark.planner.hashed_scan import RangeFunctions
from statestore.connector.spark.planner.planned_table import Changes, Face, PlannedTable
from statestore.connector.spark.source import as_spelled
from statestore.connector.spark.undated_times import check_dated
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, ReadOnlyError, UnsupportedError
from statestore.formats.places.locations import parse_location
from statestore.formats.state_table import Query

_ANALYSIS = "org.apache.spark.sql.catalyst.analysis."
READ_OPTIONS = sorted(option.name for option in OPTIONS if "read" in option.uses and "AsOf" not in option.name)
ZONE_CONF = "spark.sql.session.timeZone"


class StateCatalog(RangeFunctions):
    """The tables of a place as a catalog of one session."""

    def __init__(self, jvm: Jvm, name: str, place: Place) -> None:
        super().__init__(jvm)
        self._name = name
        self._place = place
        self._statements = Statements(jvm, place)

    @property
    def place(self) -> Place:
        return self._place

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
        of = self._jvm.static(CONNECTOR + "catalog.Identifier", "of")
        shown = namespace if len(namespace) else self.defaultNamespace()  # Catalog.listTables parses the namespace
        return self._jvm.array(CONNECTOR + "catalog.Identifier", [of(shown, name) for name in found])

    @answering
    def listTableSummaries(self, namespace: Any) -> Any:
        of = self._jvm.static(CONNECTOR + "catalog.TableSummary", "of")
        summaries = [of(identifier, "MANAGED") for identifier in self.listTables(namespace)]
        return self._jvm.array(CONNECTOR + "catalog.TableSummary", summaries)

    @answering
    def loadTable(self, identifier: Any, *given: Any) -> PlannedTable:
        asked = asked_of(given)
        check_dated(asked.time)
        found = self._loaded(identifier)
        table = found.table.pin()
        now = table.for_plan()
        query = query_for(found.mode, asked, str(self._jvm.spark.conf.get(ZONE_CONF)))
        query = as_spelled(now, pinned(now, query))
        now.splits(query)  # a version or moment that is not kept is reported with the statement
        applied = frozenset(name.lower() for name, _ in asked.options)
        face = Face(f"{self._name}.{found.name}", table, query, applied=applied)
        properties = self._properties(found)
        if not asked.privileges:
            if asked != Asked() or not _is_store(found):
                return PlannedTable(self._jvm, face, properties)
            return TruncatableTable(self._jvm, face, lambda: self._writable_path(found), properties)
        path = self._writable_path(found)
        if "UPDATE" in asked.privileges:
            raise whole_rows(face.name, "UPDATE or MERGE")
        if "INSERT" not in asked.privileges:
            return DeletableTable(self._jvm, face, lambda: path, properties)
        return RowLevelTable(self._jvm, face, target_of(path, rows_spec(path)), properties)

    @answering
    def loadChangelog(self, identifier: Any, context: Any, options: Any) -> Changes:
        found = self._loaded(identifier)
        table = found.table.pin()
        query = change_query(table, context)
        table.splits(query)
        return Changes(self._jvm, Face(f"{self._name}.{found.name}", table, query))

    @answering
    def tableExists(self, identifier: Any) -> bool:
        return self._place.find(self._parts(identifier)) is not None

    def invalidateTable(self, identifier: Any) -> None:
        """Nothing is cached here."""

    # Changes of tables

    @answering
    def createTable(self, identifier: Any, *given: Any) -> WrittenTable:
        return WrittenTable(self._jvm, *self._created(identifier, given)[:3])

    @answering
    def createTableLike(self, identifier: Any, described: Any, source: Any) -> WrittenTable:
        """Create a store of the kind, key and options of another (from Spark 4.2 on); stated properties come first."""
        properties = {**entries(source.properties()), **entries(described.properties())}
        return self.createTable(identifier, described.columns(), described.partitions(), self._jvm.map(properties))

    @answering
    def stageCreate(self, identifier: Any, *given: Any) -> StagedTable:
        face, target, properties, definition = self._created(identifier, given)
        check = partial(check_query, definition=definition)
        return StagedTable(self._jvm, face, target, properties, lambda: self.dropTable(identifier), check)

    @answering
    def stageReplace(self, identifier: Any, *given: Any) -> StagedTable:
        """Refuse to replace a table: its versions would be gone."""
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_STATEMENT,
            f"{self._shown(identifier)} keeps its versions; INSERT OVERWRITE replaces the rows as a new version, and "
            "DROP TABLE removes the table with its history",
        )

    @answering
    def stageCreateOrReplace(self, identifier: Any, *given: Any) -> StagedTable:
        make = self.stageReplace if self.tableExists(identifier) else self.stageCreate
        staged: StagedTable = make(identifier, *given)
        return staged

    def supportedCustomMetrics(self) -> Any:
        return self._jvm.array(CONNECTOR + "metric.CustomMetric", ())

    def _created(self, identifier: Any, given: tuple[Any, ...]) -> tuple[Face, Target, dict[str, str], Definition]:
        """Create a table. Spark 4.2 and later pass one description; before, columns, partitioning and properties."""
        if len(given) == 1:
            columns, partitions, properties = given[0].columns(), given[0].partitions(), given[0].properties()
        else:
            columns, partitions, properties = given
        name = self._new_name(identifier)
        if len(partitions):
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                f"table {name!r}: leave out PARTITIONED BY and CLUSTERED BY; keys are hashed into key_groups",
            )
        schema = self._schema(columns)
        stated = entries(properties)
        definition = definition_of(name, schema, stated)
        create_store(self._place.path, name, definition)
        found = self._found(identifier)
        face = Face(f"{self._name}.{found.name}", found.table, Query())
        path = self._writable_path(found)
        return face, created_target(path, schema, definition), self._properties(found), definition

    @answering
    def dropTable(self, identifier: Any) -> bool:
        found = self._place.find(self._parts(identifier))
        if found is None:
            return False
        location = parse_location(self._writable_path(found))
        connect(location.parent.uri).drop_store(location.name)
        return True

    def purgeTable(self, identifier: Any) -> bool:
        return bool(self.dropTable(identifier))

    @answering
    def renameTable(self, old: Any, new: Any) -> None:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_STATEMENT, f"{self._shown(old)} keeps its name; create another table from its rows"
        )

    @answering
    def alterTable(self, identifier: Any, *changes: Any) -> None:
        self._found(identifier)
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_STATEMENT,
            f"the columns and properties of {self._shown(identifier)} are permanent; "
            "statestore.connect(…).rebuild makes the same store with another kind, retention or serde",
        )

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
        return self._jvm.map({"location": str(parse_location(self._place.path))})

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

    # What a name means

    def _found(self, identifier: Any) -> Named:
        found = self._place.find(self._parts(identifier))
        if found is None:
            raise thrown(self._jvm.kind(_ANALYSIS + "NoSuchTableException")(identifier))
        return found

    def _loaded(self, identifier: Any) -> Named:
        """The table of a name as the statement that is analysed sees it, or one that was made since it began."""
        return self._statements.place().find(self._parts(identifier)) or self._found(identifier)

    def _writable_path(self, found: Named) -> str:
        """The path or URI of a table that is a store. Raises ReadOnlyError or UnsupportedError for other tables."""
        warehouse = self._place.warehouse()
        if warehouse is None or not _is_store(found):
            raise ReadOnlyError(
                ErrorCode.READ_ONLY,
                f"{self._name}.{found.name} can only be read: it is a view of a store, or the state of an engine",
            )
        path = parse_location(warehouse.address(found.name)).uri
        rows_spec(path)
        return path

    def _properties(self, found: Named) -> dict[str, str]:
        table = found.table
        return properties_of(table.spec) if isinstance(table, VersionedTable) and _is_store(found) else {}

    def _new_name(self, identifier: Any) -> str:
        parts = [part for part in self._parts(identifier) if part != DEFAULT]
        if self._place.find(parts) is not None:
            raise thrown(self._jvm.kind(_ANALYSIS + "TableAlreadyExistsException")(identifier))
        if len(parts) != 1:
            raise thrown(self._jvm.kind(_ANALYSIS + "NoSuchNamespaceException")(identifier.namespace()))
        return parts[0]

    def _schema(self, columns: Any) -> StructType:
        struct = self._jvm.kind("org.apache.spark.sql.types.StructType")()
        for column in columns:  # collations are in the metadata that a struct gives its fields
            struct = struct.add(str(column.name()), column.dataType(), bool(column.nullable()))
        return schema_of(struct)

    def _shown(self, identifier: Any) -> str:
        return ".".join((self._name, *self._parts(identifier)))

    def _parts(self, identifier: Any) -> tuple[str, ...]:
        return (*texts(identifier.namespace()), str(identifier.name()))

    def _texts(self, names: list[str]) -> Any:
        made = self._jvm.gateway.new_array(self._jvm.kind("java.lang.String"), len(names))
        for position, name in enumerate(names):
            made[position] = name
        return made

    class Java:
        implements = tuple(
            CONNECTOR + "catalog." + name for name in ("StagingTableCatalog", "SupportsNamespaces", "FunctionCatalog")
        )


def _is_store(found: Named) -> bool:
    """Return whether a name means the state of a store that takes rows."""
    return found.mode == "state" and isinstance(found.table, VersionedTable)
