"""The fields of struct columns that a statement needs: Spark's pruned schema as paths into a table's columns."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql.types import DataType, StructField, StructType


def pruned(whole: StructType, wanted: StructType) -> StructType:
    """The fields of ``whole`` that ``wanted`` names, at any depth of structs, in the order of ``whole``."""
    names = set(wanted.names)
    return StructType([_pruned_field(field, wanted[field.name]) for field in whole if field.name in names])


def _pruned_field(field: StructField, wanted: StructField) -> StructField:
    if not isinstance(field.dataType, StructType) or not isinstance(wanted.dataType, StructType):
        return field
    return StructField(field.name, pruned(field.dataType, wanted.dataType), field.nullable, field.metadata)


def paths_of(whole: StructType, schema: StructType) -> tuple[tuple[str, ...], ...]:
    """The paths to what ``schema`` has of those struct columns of which it does not have all."""
    return tuple(
        path
        for field in schema
        if _differ(whole[field.name].dataType, field.dataType)
        for path in _paths(whole[field.name], field)
    )


def _paths(whole: StructField, field: StructField) -> Iterator[tuple[str, ...]]:
    if not _differ(whole.dataType, field.dataType):
        yield (field.name,)
        return
    assert isinstance(whole.dataType, StructType)
    assert isinstance(field.dataType, StructType)
    for each in field.dataType:
        for path in _paths(whole.dataType[each.name], each):
            yield (field.name, *path)


def _differ(whole: DataType, part: DataType) -> bool:
    """Return whether ``part``, made by `pruned`, lacks fields."""
    if not isinstance(whole, StructType) or not isinstance(part, StructType):
        return False
    return whole.names != part.names or any(_differ(whole[name].dataType, part[name].dataType) for name in part.names)
