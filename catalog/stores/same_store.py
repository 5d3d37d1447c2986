"""Whether a store is the one that a caller describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.shown import shown_columns
from statestore.catalog.stores.kind_options import OPTIONS, windowing_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.values.times import duration_ms
from statestore.formats.values.types import make_schema

IF_MISSING = ("error", "create")


def check_if_missing(if_missing: Any) -> None:
    """Raise InvalidInputError INVALID_OPTION for another word than ``error`` or ``create``."""
    if not isinstance(if_missing, str) or if_missing not in IF_MISSING:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"if_missing is {shown(if_missing)}; expected one of {', '.join(IF_MISSING)}"
        )


def check_same(spec: StoreSpec, kind: str | None, key: Any, value: Any, options: Mapping[str, Any]) -> None:
    """Raise InvalidInputError STORE_EXISTS, which shows both, if the store differs from what is given of it.

    What is None is not given. ``options`` are those of `Catalog.create_store`.
    """
    found: list[tuple[str, Any, Any]] = [("kind", spec.kind, kind)] if kind not in (None, spec.kind) else []
    found += _columns("key", spec.user_key, key)
    found += _columns("value", spec.value, value)
    given = {name: value for name, value in options.items() if value is not None}
    if kind in (None, spec.kind):
        found += [(n, _own(spec, n), shown(each)) for n, each in given.items() if not _is(spec, n, each)]
    if found:
        differences = "; ".join(f"{name} is {is_}, and {asked} was given" for name, is_, asked in found)
        raise InvalidInputError(
            ErrorCode.STORE_EXISTS,
            f"store {spec.name!r} exists and differs from what was given: {differences}; leave out what shall stay as "
            "it is, use rebuild to change a kind or an option, or choose another name",
        )


def _columns(what: str, own: pa.Schema, given: Any) -> list[tuple[str, str, str]]:
    if given is None:
        return []
    asked = make_schema(given, "key" if what == "key" else "value")
    same = own.names == asked.names and own.types == asked.types
    return [] if same else [(what, f"({shown_columns(own)})", f"({shown_columns(asked)})")]


def _is(spec: StoreSpec, name: str, value: Any) -> bool:
    """Return whether an option has a value. Raises InvalidInputError as `Catalog.create_store` does."""
    if name in ("serde", "key_groups"):
        return bool(_own(spec, name) == value)
    windowing = windowing_of(spec.kind, {**_options(spec), name: value})  # refuses what the kind does not have
    if spec.windowing is None:
        return bool(duration_ms(value, name) == _own(spec, name))
    return windowing == spec.windowing


def _own(spec: StoreSpec, name: str) -> Any:
    return getattr(spec, name) if name in ("serde", "key_groups") else _options(spec).get(name)


def _options(spec: StoreSpec) -> dict[str, Any]:
    """Return the options of a store by the names of `create_store`."""
    rule = spec.windowing
    if rule is None:
        own = {"history_retention": spec.history_retention, "segment_interval": spec.segment_interval}
    else:
        own = {
            "retention": rule.retention,
            "segment_interval": rule.segment_interval,
            "window_size": rule.window_size,
            "retain_duplicates": rule.duplicates,
            "time_ordered": rule.time_ordered,
            "window_before": rule.before,
            "window_after": rule.after,
            "num_segments": rule.segments,
            "batched_changelog": rule.batched_changelog,
        }
    return {name: value for name, value in own.items() if name in OPTIONS[spec.kind]}
