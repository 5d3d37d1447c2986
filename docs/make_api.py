"""Write docs/api.md from the docstrings: ``python docs/make_api.py``. A test compares the two."""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pyarrow as pa
from make_reference import ROOT, members, table

import statestore
from statestore.catalog.describe.metadata_table import TABLES
from statestore.catalog.stores.store_handle import StoreHandle

PAGE = ROOT / "docs" / "api.md"
HEAD = """# Python API

Made from the docstrings by `python docs/make_api.py`; do not edit. The [reference](reference.md) lists options,
commands and error codes.

Types: a `Time` is an `int` of epoch milliseconds, an aware `datetime`, or a text like
`"2024-05-01T09:30Z"`. A duration is an `int` of milliseconds, a `timedelta`, or a text like `"30 days"`.
"""
READS = ("scan", "history", "changes")
KEY, VALUE = {"item": "string"}, {"price": "double"}
KINDS: dict[str, dict[str, Any]] = {
    "versioned": {},
    "key_value": {},
    "window": {"retention": "1 hour", "window_size": "1 minute"},
    "join_window": {"window_before": "1 minute", "window_after": "1 minute", "retention": "1 hour", "num_segments": 3},
    "session": {"retention": "1 hour"},
}
ASKED_FOR = "_commit_version"


def page() -> str:
    """Return the whole page."""
    parts = [HEAD, *_results(), *_functions(), *_classes()]
    for module in (statestore.joins, statestore.kafka, statestore.tracked):
        parts += _module(module)
    return "\n".join(parts).rstrip() + "\n"


def _results() -> Iterator[str]:
    """Tables with the columns of each read, found by asking stores that have the key `item` and the value `price`."""
    yield "\n## Columns of results\n"
    yield (
        "Columns of stores with the key `item string` and the value `price double`. A column in brackets is returned "
        "when `columns=` names it. `diff` and `compare` return `_change`, the key, `_old` and `_new` (structs of the "
        "values) and `_changed_columns`. The states of [Spark](spark-state.md), [Flink](flink-state.md) and "
        "[Kafka Streams](kafka-state.md) have the columns that their pages list.\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        catalog = statestore.connect(folder)
        for kind, options in KINDS.items():
            catalog.create_store(kind, kind=kind, key=KEY, value=VALUE, **options).close()
        _commit_states(catalog)
        warehouse = statestore.inspect(folder)
        tables = {f"a `{kind}` store": kind for kind in KINDS}
        tables |= {f"a {state} state of a keyed store": f"keyed.{state}" for state in ("value", "list", "map")}
        same: dict[str, list[str]] = {}
        for title, name in tables.items():
            same.setdefault(_columns(warehouse.table(name)), []).append(title)
    for columns, titles in same.items():
        yield f"\n### Of {' and of '.join(titles)}\n\n{columns}"
    for name, schema in TABLES.items():
        yield f"\n### Of the metadata table `<table>${name}`\n"
        yield table(("column", "type"), ((f"`{field.name}`", _type(field.type)) for field in schema))


def _commit_states(catalog: statestore.Catalog) -> None:
    with catalog.create_store("keyed", kind="keyed", key=KEY) as store, store.backend() as backend:
        value, listed = backend.value_state("value", "double"), backend.list_state("list", "double")
        mapped = backend.map_state("map", "string", "double")
        backend.set_current_key("curry")
        value.update(8.0)
        listed.add(8.0)
        mapped.put("monday", 8.0)
        store.commit([backend.snapshot("full").result()])


def _columns(read: statestore.Table) -> str:
    """Return a table with a row for each column, and a column for each read that has it."""
    schemas = {name: getattr(read, name)().schema for name in READS}
    types = {field.name: field.type for schema in schemas.values() for field in schema}

    def mark(name: str, column: str) -> str:
        if column in schemas[name].names:
            return "yes"
        return "(yes)" if column == ASKED_FOR and _has(read, name, column) else ""

    rows = ([f"`{column}`", _type(kind), *(mark(name, column) for name in READS)] for column, kind in types.items())
    return table(("column", "type", *(f"`{name}`" for name in READS)), rows)


def _has(read: statestore.Table, name: str, column: str) -> bool:
    """Return whether a read returns a column that is not among those it returns unasked."""
    try:
        getattr(read, name)(columns=[column])
    except statestore.NotFoundError:
        return False
    return True


def _type(kind: pa.DataType) -> str:
    return f"`{kind}`"


def _functions() -> Iterator[str]:
    yield "\n## Functions\n"
    for name, thing in _public(statestore).items():
        if not inspect.isclass(thing):
            yield from _entry("###", f"statestore.{name}", thing)


def _classes() -> Iterator[str]:
    found = {n: t for n, t in _public(statestore).items() if inspect.isclass(t) and not issubclass(t, Exception)}
    stores = {name: thing for name, thing in found.items() if issubclass(thing, StoreHandle)}
    shared = {
        name
        for name in set.intersection(*(set(members(thing)) for thing in stores.values()))
        if len({inspect.getdoc(getattr(thing, name)) for thing in stores.values()}) == 1
    }
    yield "\n## Every store of rows\n\nThese members are the same for every kind; tables have those that read.\n"
    yield from _members(next(iter(stores.values())), shared)
    for name, thing in found.items():
        yield from _class(name, thing, shared)


def _module(module: ModuleType) -> Iterator[str]:
    yield f"\n## {module.__name__}\n\n{_text(module)}\n"
    for name, thing in _public(module).items():
        if inspect.isclass(thing):
            yield from _class(name, thing, set(), "###")
        else:
            yield from _entry("###", f"{module.__name__}.{name}", thing)


def _class(name: str, thing: type, shared: set[str], heading: str = "##") -> Iterator[str]:
    yield f"\n{heading} {name}\n\n{_text(thing)}\n"
    yield from _members(thing, set(members(thing)) - shared, f"{heading}#")


def _members(thing: type, names: set[str], heading: str = "###") -> Iterator[str]:
    for name in sorted(names):
        yield from _entry(heading, name, getattr(thing, name))


def _entry(heading: str, name: str, thing: Any) -> Iterator[str]:
    yield f"\n{heading} {name}\n"
    if callable(thing):
        yield f"```python\n{_signature(name, thing)}\n```\n"
    yield f"{_text(thing)}\n"


def _signature(name: str, thing: Any) -> str:
    """Return the call with its types; one parameter a line where it would be long."""
    signature = inspect.signature(thing)
    parts: list[str] = []
    starred = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        if parameter.name != "self":
            parts.append(_parameter(parameter))
    result = "" if signature.return_annotation is signature.empty else f" -> {signature.return_annotation}"
    line = f"{name}({', '.join(parts)}){result}"
    return line if len(line) <= 110 else f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){result}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = "*" * (parameter.kind is parameter.VAR_POSITIONAL) + "**" * (parameter.kind is parameter.VAR_KEYWORD)
    typed = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}{typed}"
    default = "…" if callable(parameter.default) else repr(parameter.default)
    return f"{parameter.name}{typed}{' = ' if typed else '='}{default}"


def _text(thing: Any) -> str:
    """Return the docstring as Markdown."""
    return re.sub(r"``([^`]+)``", r"`\1`", inspect.getdoc(thing) or "")


def _public(module: ModuleType) -> dict[str, Any]:
    return {name: getattr(module, name) for name in module.__all__}


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
