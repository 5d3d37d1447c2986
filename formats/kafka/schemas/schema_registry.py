"""Schemas from a schema registry, by Confluent's REST interface.

    GET /schemas/ids/{id}                         {"schema": TEXT, "schemaType": TYPE, "references": [...]}
    GET /subjects/{subject}/versions/{version}    the same, for each reference {"name", "subject", "version"}

Global ids of Apicurio's registry are those of its own interface, which answers with the schema alone:

    GET /ids/globalIds/{id}

An id never gets another schema, so what was fetched is kept. User and password stand in the registry's URL, or in the
environment variable STATESTORE_SCHEMA_REGISTRY_AUTH as ``user:password`` or ``Bearer TOKEN``; no message has them. A
context of Confluent's registry is part of the URL: ``http://HOST/contexts/.NAME``. Certificates are checked
against those of the system, or of the file that SSL_CERT_FILE names.
"""

from __future__ import annotations

import base64
import http.client
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StorageError, shown
from statestore.formats.kafka.schemas.schema_ids import APICURIO, CONFLUENT, IdForm
from statestore.formats.values.expansion import parse_json

AUTH_VARIABLE = "STATESTORE_SCHEMA_REGISTRY_AUTH"
TIMEOUT_SECONDS = 10.0
_MOST_BYTES = 16 << 20
_PIECE = 1 << 16
_MOST_REFERENCES = 100
_MOST_KEPT = 1000
_URL = re.compile(r"https?://", re.IGNORECASE)
_REMEDY = "give the schemas as files (avro:5=a.avsc,6=b.avsc, or a folder) if it cannot be reached"

_kept: dict[tuple[str, str, int], tuple[str, tuple[str, ...]]] = {}
"""(type, schema) by URL, form of ids, and id."""


def is_registry(place: str) -> bool:
    """Return whether a text is the URL of a registry."""
    return _URL.match(place.strip()) is not None


def public_url(url: str) -> str:
    """The URL without user, password, query and fragment."""
    try:
        parts = urlsplit(url.strip())
        place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    except ValueError:
        return "the registry"
    return place.rstrip("/")


def fetch_schema(url: str, number: int, kind: str, ids: IdForm = CONFLUENT) -> tuple[str, ...]:
    """The schema with an id: first those that it refers to, at last its own. ``kind`` is the type that it must have.

    Raises InvalidInputError WRONG_SCHEMA for an unknown id or another type, StorageError REGISTRY_FAILED.
    """
    key = url, ids.suffix, number
    if key not in _kept:
        registry, what = _registry(url), f"schema id {number}"
        if ids is APICURIO:
            answer = _answer(registry, f"/ids/globalIds/{number}", what)
            found = {"schema": _text(registry, answer, what), "schemaType": kind}
        else:
            found = _entry(registry, f"/schemas/ids/{number}", what)
        references: dict[tuple[str, int], str] = {}
        _collect(registry, found, references, 0)
        if len(_kept) >= _MOST_KEPT:
            _kept.pop(next(iter(_kept)))
        _kept[key] = found.get("schemaType") or "AVRO", (*references.values(), found["schema"])
    is_kind, texts = _kept[key]
    if is_kind != kind:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"{public_url(url)}: schema id {number} is of type {shown(is_kind)}, expected {kind}; name another serde",
        )
    return texts


@dataclass(frozen=True)
class _Registry:
    """A registry: ``base`` has no credentials, ``shown`` is for messages."""

    base: str
    headers: Mapping[str, str]
    opener: OpenerDirector


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect: another server would get the password."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _registry(url: str) -> _Registry:
    base = public_url(url)
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA, f"{base} is no URL of a schema registry; expected http://HOST:PORT or https://HOST"
        )
    auth = os.environ.get(AUTH_VARIABLE)
    if parts.username is not None:
        auth = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    if auth:
        basic = f"Basic {base64.b64encode(auth.encode()).decode()}"
        headers["Authorization"] = auth if auth.startswith("Bearer ") else basic
    own = host == "localhost" or host == "::1" or host.startswith("127.")
    handlers = [_NoRedirect(), *([ProxyHandler({})] if own else [])]
    return _Registry(base, headers, build_opener(*handlers))


def _collect(registry: _Registry, entry: Mapping[str, Any], into: dict[tuple[str, int], str], depth: int) -> None:
    """Add the schemas to which an entry refers, each after those to which it refers itself."""
    for reference in entry.get("references") or ():
        subject, version = reference["subject"], reference["version"]
        if (subject, version) in into:
            continue
        if depth >= _MOST_REFERENCES or len(into) >= _MOST_REFERENCES:
            _fail(registry, f"found more than {_MOST_REFERENCES} references of a schema")
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        found = _entry(registry, path, f"version {version} of subject {subject!r}")
        _collect(registry, found, into, depth + 1)
        into[(subject, version)] = found["schema"]


def _entry(registry: _Registry, path: str, what: str) -> dict[str, Any]:
    data = _answer(registry, path, what)
    try:
        found = parse_json(data)
    except ValueError:
        found = None
    if not _is_entry(found):
        _fail(registry, f"answers for {what} with {shown(data[:80])}, expected JSON with a schema as text")
    entry: dict[str, Any] = found
    return entry


def _text(registry: _Registry, data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        _fail(registry, f"answers for {what} with {shown(data[:80])}, expected the text of a schema")


def _answer(registry: _Registry, path: str, what: str) -> bytes:
    try:
        request = Request(registry.base + path, headers=dict(registry.headers))
        with registry.opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
            data = _read(answer)
    except HTTPError as error:
        error.close()
        if error.code == 404:
            raise InvalidInputError(
                ErrorCode.WRONG_SCHEMA,
                f"{registry.base} has no {what}; name the registry of the application, or {_REMEDY}",
            ) from None
        reason = "asks for a user and a password" if error.code in (401, 403) else "answers"
        hint = f" (user:password@ in its URL, or {AUTH_VARIABLE})" if error.code in (401, 403) else ""
        _fail(registry, f"{reason} with status {error.code} for {what}{hint}")
    except (URLError, OSError, ValueError, http.client.HTTPException) as error:
        cause = type(getattr(error, "reason", None) or error).__name__
        _fail(registry, f"does not answer for {what} within {TIMEOUT_SECONDS:g} seconds ({cause})")
    if len(data) > _MOST_BYTES:
        _fail(registry, f"answers for {what} with more than {_MOST_BYTES} bytes")
    return data


def _read(answer: http.client.HTTPResponse) -> bytes:
    """The body of an answer, at most one byte more than allowed. Raises TimeoutError when it comes too slowly."""
    data, until = bytearray(), time.monotonic() + TIMEOUT_SECONDS
    while len(data) <= _MOST_BYTES:
        part = answer.read1(_PIECE)
        if not part:
            break
        data += part
        if time.monotonic() > until:
            raise TimeoutError
    return bytes(data)


def _is_entry(found: Any) -> bool:
    if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
        return False
    references = found.get("references") or []
    return isinstance(references, list) and all(
        isinstance(each, dict) and isinstance(each.get("subject"), str) and type(each.get("version")) is int
        for each in references
    )


def _fail(registry: _Registry, found: str) -> NoReturn:
    raise StorageError(ErrorCode.REGISTRY_FAILED, f"schema registry {registry.base} {found}; {_REMEDY}")
