"""Requests to a schema registry: answers within a bounded time and of a bounded size, and errors without a password.

User and password stand in the registry's URL, or in the environment variable STATESTORE_SCHEMA_REGISTRY_AUTH as
``user:password`` or ``Bearer TOKEN``; no message has them. No redirect is followed, because another server would get
the password. Certificates are checked against those of the system, or of the file that SSL_CERT_FILE names.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StorageError

AUTH_VARIABLE = "STATESTORE_SCHEMA_REGISTRY_AUTH"
TIMEOUT_SECONDS = 10.0
"""Seconds for one answer."""
MOST_SECONDS = 60.0
"""Seconds for a schema and all to which it refers."""
MOST_BYTES = 16 << 20
"""Bytes of a schema and of all to which it refers."""
REMEDY = "give the schemas as files (avro:5=a.avsc,6=b.avsc, or a folder) if it cannot be reached"
_PIECE = 1 << 16
_URL = re.compile(r"https?://", re.IGNORECASE)
_PLAIN = re.compile(r"[!-~]+")
_WORDS = {
    401: "asks for a user and a password",
    403: "does not let this user in",
    407: "is behind a proxy that asks for a password",
    429: "has too many requests",
}


def is_registry(place: str) -> bool:
    """Return whether a text is the URL of a registry."""
    return _URL.match(place.strip()) is not None


def public_url(url: str) -> str:
    """The URL without user, password, query and fragment, wherever a password has characters that end a host."""
    scheme, mark, rest = url.strip().partition("://")
    try:
        parts = urlsplit(f"{scheme}{mark}{rest.rpartition('@')[2]}")
        place = f"{parts.scheme}://{parts.netloc}{parts.path}"
    except ValueError:
        return "the registry"
    return place.rstrip("/")


def without_credentials(text: str) -> str:
    """The text of a message without what may be a user and a password in it."""
    before, mark, after = text.rpartition("@")
    url = _URL.search(before)
    kept = before[: url.end()] if url is not None else before.rstrip("".join(set(before) - set("'\"")))
    return f"{kept}{after}" if mark else text


class _Clock:
    """The sockets of an answer that is waited for, which are shut when its time is over.

    A timeout of a socket is not enough, because it begins anew with each byte.
    """

    def __init__(self) -> None:
        self.late = False
        self.sockets: list[socket.socket] = []

    def add(self, connected: socket.socket) -> None:
        self.sockets.append(connected)
        if self.late:
            self.end()

    def end(self) -> None:
        self.late = True
        for each in self.sockets:
            with contextlib.suppress(OSError):  # it is closed
                each.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run for TIMEOUT_SECONDS, or until the block is left."""
        timer = threading.Timer(TIMEOUT_SECONDS, self.end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self.sockets.clear()


@dataclass
class Registry:
    """A registry, for one schema and those to which it refers.

    ``base`` has no credentials. All answers have until ``until``, and ``left`` bytes.
    """

    base: str
    headers: Mapping[str, str]
    opener: OpenerDirector
    clock: _Clock
    until: float = field(default_factory=lambda: time.monotonic() + MOST_SECONDS)
    left: int = MOST_BYTES


def registry_at(url: str) -> Registry:
    """The registry of a URL. Raises InvalidInputError WRONG_SCHEMA for what is none."""
    base = public_url(url)
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if host and "@" in f"{parts.path}{parts.query}{parts.fragment}":
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"{base} has an @ behind its host; write / ? # and @ of a user and a password as %2F %3F %23 and %40",
        )
    if not host or _PLAIN.fullmatch(base) is None:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"{base} is no URL of a schema registry; expected http://HOST:PORT or https://HOST, and in its path %XX "
            "for characters beyond ASCII",
        )
    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    if parts.username is not None:
        headers["Authorization"] = _basic(f"{unquote(parts.username)}:{unquote(parts.password or '')}", base)
    elif auth := os.environ.get(AUTH_VARIABLE, "").strip():
        headers["Authorization"] = _bearer(auth) if auth.startswith("Bearer ") else _basic(auth, AUTH_VARIABLE)
    own = host == "localhost" or host == "::1" or host.startswith("127.")
    clock = _Clock()
    handlers = [_NoRedirect(), *_handlers(clock), *([ProxyHandler({})] if own else [])]
    return Registry(base, headers, build_opener(*handlers), clock)


def _basic(auth: str, where: str) -> str:
    try:
        return f"Basic {base64.b64encode(auth.encode()).decode()}"
    except UnicodeEncodeError:
        raise _wrong_auth(where, "that are no text in UTF-8", "a user and a password in UTF-8") from None


def _bearer(auth: str) -> str:
    if _PLAIN.fullmatch(auth.removeprefix("Bearer ").strip()) is None:
        raise _wrong_auth(AUTH_VARIABLE, "with spaces or characters beyond ASCII", "Bearer and one token")
    return auth


def _wrong_auth(where: str, found: str, expected: str) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.WRONG_SCHEMA, f"{where}: found credentials {found}, which are not shown; expected {expected}"
    )


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _handlers(clock: _Clock) -> list[HTTPHandler | HTTPSHandler]:
    """Handlers whose connections are known to the clock."""

    class Connection(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            clock.add(self.sock)

    class Secure(Connection, http.client.HTTPSConnection):
        pass

    class OfConnection(HTTPHandler):
        def http_open(self, req: Request) -> http.client.HTTPResponse:
            return self.do_open(Connection, req)

    class OfSecure(HTTPSHandler):
        def https_open(self, req: Request) -> http.client.HTTPResponse:
            return self.do_open(Secure, req)

    return [OfConnection(), OfSecure()]


def answer_to(registry: Registry, path: str, what: str) -> bytes:
    """The body of the answer for a path; ``what`` names in messages what was asked for.

    Raises InvalidInputError WRONG_SCHEMA where the registry does not have it, StorageError REGISTRY_FAILED.
    """
    if time.monotonic() > registry.until:
        fail(registry, f"took more than {MOST_SECONDS:g} seconds for a schema and those to which it refers")
    request = Request(registry.base + path, headers=dict(registry.headers))
    try:
        with registry.clock.running(), registry.opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
            data = _read(answer, registry.left)
            if registry.clock.late:
                raise TimeoutError
    except HTTPError as error:
        error.close()
        if error.code == 404:
            raise InvalidInputError(
                ErrorCode.WRONG_SCHEMA,
                f"{registry.base} has no {what}; name the registry of the application, or {REMEDY}",
            ) from None
        _fail_with_status(registry, error, what)
    except (URLError, OSError, ValueError, http.client.HTTPException) as error:
        _fail_without_answer(registry, error, what)
    if len(data) > registry.left:
        fail(registry, f"answers for {what} with more than {MOST_BYTES} bytes, with those of schemas that it refers to")
    registry.left -= len(data)
    return data


def _read(answer: http.client.HTTPResponse, most: int) -> bytes:
    """The body of an answer, at most one byte more than ``most``. Raises IncompleteRead."""
    data = bytearray()
    while len(data) <= most:
        part = answer.read1(min(_PIECE, most + 1 - len(data)))
        if not part:
            if answer.length:
                raise http.client.IncompleteRead(b"", answer.length)
            break
        data += part
    return bytes(data)


def _fail_with_status(registry: Registry, error: HTTPError, what: str) -> NoReturn:
    found = f"{_WORDS.get(error.code, 'answers')} with status {error.code} for {what}"
    if error.code in (401, 403):
        found += f" (user:password@ in its URL, or {AUTH_VARIABLE})"
    elif 300 <= error.code < 400:
        place = public_url(error.headers.get("Location") or "")
        to = f" to {place[:200]}" if is_registry(place) and _PLAIN.fullmatch(place) else ""
        found += f": it redirects{to}, and no redirect is followed; name the URL of the registry itself"
    fail(registry, found)


def _fail_without_answer(registry: Registry, error: Exception, what: str) -> NoReturn:
    cause: Any = getattr(error, "reason", None) or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        fail(
            registry,
            f"has a certificate that is not trusted ({cause.verify_message}); name a file with its authority's "
            "certificate in SSL_CERT_FILE, and the host as the certificate has it",
        )
    name = type(cause).__name__
    if registry.clock.late or isinstance(cause, TimeoutError):
        fail(registry, f"does not answer for {what} within {TIMEOUT_SECONDS:g} seconds ({name})")
    if isinstance(cause, http.client.HTTPException | ssl.SSLError) and not isinstance(cause, ConnectionError):
        kind = "TLS" if isinstance(cause, ssl.SSLError) else "HTTP"
        fail(registry, f"answers for {what} with what is not whole or no {kind} ({name})")
    fail(registry, f"does not answer for {what} ({name})")


def fail(registry: Registry, found: str) -> NoReturn:
    """Raise StorageError REGISTRY_FAILED."""
    raise StorageError(ErrorCode.REGISTRY_FAILED, f"schema registry {registry.base} {found}; {REMEDY}")
