"""The path or URI that a read or write in Spark names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.places.locations import is_relative, parse_location

PROVIDERS = ("arrow_statestore", "statestore")
_THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")


def checked_path(options: Mapping[str, str]) -> str:
    """The absolute local path, or the URI, in the options.

    Raises InvalidInputError MISSING_PATH, INVALID_OPTION or INVALID_LOCATION.
    """
    provider = _option(options, "provider")
    if provider is not None and provider.lower() not in PROVIDERS:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"option provider is {provider!r}; expected builtin, for Spark's own source, or nothing",
        )
    path = _option(options, "path")
    if not path:
        raise InvalidInputError(ErrorCode.MISSING_PATH, "expected one path; write .load('warehouse/store') or .save(…)")
    return parse_location(path).uri


def client_path(path: str, session: Any) -> str:
    """The path as this process means it. Spark's processes run in other directories, and a server of Spark Connect
    plans each session in a directory of its own.

    Raises InvalidInputError INVALID_LOCATION for a relative path where the server runs on another machine.
    """
    if not path.strip() or not is_relative(path):
        return path
    host = None if session is None or hasattr(session, "_jsparkSession") else session.client.host
    if host is not None and host not in _THIS_MACHINE:
        raise InvalidInputError(
            ErrorCode.INVALID_LOCATION,
            f"path {path!r} is relative to a folder of this machine, and the session's server runs on {host}; give the "
            "absolute path of the store there, or a URI",
        )
    return parse_location(path).uri


def _option(options: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)
