"""Moments as the page takes them: a version, a time, or both, as in ``statestore diff``."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.state_table import StateTable
from statestore.formats.values.times import format_time, parse_time

_NUMBER = re.compile(r"[0-9]{1,16}")
_UTC = re.compile(r"\s*UTC$")  # as the page shows times


def moment_of(table: StateTable, text: str) -> dict[str, Any]:
    """Return the ``version`` that a text names, and ``as_of``, a state time as text, where it names one, too.

    The text is a version (``12``), ``latest``, a time, which stands for the newest version that was committed by then,
    or ``12@TIME``: that state time as version 12 recorded it. A time is anything that ``--as-of`` takes. ``note`` says
    what a person should know of the answer. Raises InvalidInputError INVALID_OPTION, and NotFoundError for no such
    version.
    """
    first, last = table.kept_versions()
    version, at, time = (part.strip() for part in _UTC.sub("Z", text.strip()).partition("@"))
    as_of = format_time(parse_time(time, "state time")) if at else ""
    if version.lower() in ("latest", "newest") or (at and not version):
        return {"version": last, "as_of": as_of, "note": ""}
    if _NUMBER.fullmatch(version) and first <= int(version) <= last:
        return {"version": int(version), "as_of": as_of, "note": ""}
    if at or (_NUMBER.fullmatch(version) and len(version) < 9):  # shorter than any time in epoch seconds since 1973
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"version {shown(version)}: expected one of {first} to {last}, or latest"
        )
    moment = parse_time(version, "go to")
    versions = table.versions()
    committed = versions.filter(pc.less_equal(versions["timestamp"].cast(pa.int64()), moment))["version"]
    kept = [each for each in committed.to_pylist() if first <= each <= last]
    note = "" if kept else f"nothing is kept of that time; version {first} is the oldest"
    return {"version": max(kept, default=first), "as_of": "", "note": note}
