"""The options that read maps of SQL with null keys, which a map of Arrow cannot have: lists of their entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.flink.columns.faults import NullMapKeyError
from statestore.formats.flink.layouts.type_layouts import arrow_type
from statestore.formats.flink.serializers.declared import declared_text, with_declared
from statestore.formats.flink.serializers.flink_types import ENTRIES, FlinkType, Logical, replaced
from statestore.formats.flink.streams.operator_rows import OperatorForm
from statestore.formats.flink.streams.state_form import BINARY, KEY, MAP_KEY, MAP_VALUE, NAMESPACE, VALUE, KeyedForm


def with_option(error: NullMapKeyError, state: str, form: KeyedForm | OperatorForm) -> UnsupportedError:
    """The error that names the options with which the state can be read, with the whole types in them."""
    items = [f"{state}.{column}={_entries(kind)}" for column, kind in _columns(form) if _has(kind, error.kind)]
    if not items:
        return error
    return UnsupportedError(error.code, f"{error.found}; give --type '{';'.join(items)}'")


def _columns(form: KeyedForm | OperatorForm) -> Iterator[tuple[str, FlinkType]]:
    """The columns of a state whose types can be given, with their types."""
    if isinstance(form, OperatorForm):
        if form.key is not None:
            yield MAP_KEY, form.key
        yield VALUE if form.key is None else MAP_VALUE, form.value
        return
    yield KEY, form.key
    if form.has_namespace:
        yield NAMESPACE, form.namespace
    if form.map_key is not None:
        yield MAP_KEY, form.map_key
    yield MAP_VALUE if form.kind == "map" else VALUE, form.element


def _has(kind: FlinkType, wanted: Logical) -> bool:
    """Return whether a map of this type is in a type."""
    met: list[FlinkType] = []

    def note(part: FlinkType) -> FlinkType:
        met.append(part)
        return part

    replaced(kind, note)
    return wanted in met


def _entries(kind: FlinkType) -> str:
    """The type as a user gives it, with lists of entries in place of maps of SQL; ``binary`` where it has no text."""

    def change(part: FlinkType) -> FlinkType:
        if isinstance(part, Logical) and part.root in ("MAP", "MULTISET"):
            return replace(part, names=ENTRIES)
        return part

    shown = replaced(kind, change)
    try:
        text = declared_text(arrow_type(shown))
        with_declared(kind, text)
    except (UnsupportedError, InvalidInputError):
        return BINARY
    return text
