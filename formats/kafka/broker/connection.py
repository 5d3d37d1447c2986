"""Connections to a broker through ``confluent-kafka``, which is loaded when a broker is asked for.

A reader writes nothing: no group is joined, no offset is committed, no topic is created. Security settings stand in a
file of properties as librdkafka names them (``security.protocol=SASL_SSL``). The file is read anew for each connection,
and neither its path nor its content is part of a message.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, InvalidInputError, StateStoreError, UnsupportedError, shown
from statestore.formats.places.locations import Location

ANSWER_S = 8.0
"""Seconds for the answer to one request."""

_MOST_BYTES = 1 << 20
_OPTION = "option consumerConfig"
_SERVER = re.compile(r"(?:\[[^\[\]]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?")  # librdkafka takes port 9092 where none is given
_LEAST_SECRET = 4  # a shorter value would be cut out of innocent words
# Settings of this reader, and the one that loads code.
_OWN = {
    "bootstrap.servers", "metadata.broker.list", "group.id", "group.instance.id", "enable.auto.commit",
    "enable.auto.offset.store", "enable.partition.eof", "auto.offset.reset", "allow.auto.create.topics",
    "plugin.library.paths",
}  # fmt: skip


@dataclass(frozen=True)
class BrokerAddress:
    """Brokers as ``host:port,host:port``, and the path of a file with settings. Holds no connection.

    ``option`` is what has named the file.
    """

    servers: str
    config: str | None = field(default=None, repr=False)
    option: str = field(default=_OPTION, repr=False, compare=False)

    def __str__(self) -> str:
        return f"kafka://{self.servers}"


@dataclass(frozen=True)
class Connection:
    """An open consumer of the client library; ``said`` are the newest errors of its connections."""

    address: BrokerAddress
    client: Any
    consumer: Any
    said: list[str]

    def ask(self, request: Callable[[], Any]) -> Any:
        """The answer to a request. Raises as `connected`."""
        try:
            return request()
        except self.client.KafkaException as error:
            raise self.failure(error.args[0]) from None

    def failure(self, error: Any) -> StateStoreError:
        """The error for one of the client library (``KafkaError``)."""
        self.consumer.poll(0)  # hands out what connections have said
        reason = self.said[-1] if self.said else error.name()
        if error.code() in (error._AUTO_OFFSET_RESET, error.OFFSET_OUT_OF_RANGE):
            return changed(self.address, "offsets that were there when the log was opened are removed")
        return InvalidInputError(
            ErrorCode.NO_ACCESS,
            f"{self.address}: no answer from a broker ({reason}); check the address, that the addresses which brokers "
            "advertise (advertised.listeners) are reached from here, and for TLS or SASL the file of "
            f"{self.address.option}",
        )


def changed(address: BrokerAddress, found: str) -> ConflictError:
    """The error for a log that is no longer as it was when it was opened."""
    return ConflictError(ErrorCode.KAFKA_LOG_CHANGED, f"{address}: {found}; read again")


def address_of(location: Location, config: str | None, option: str = _OPTION) -> BrokerAddress:
    """The brokers of a location; ``option`` has named the file. Raises InvalidInputError INVALID_LOCATION."""
    form = "expected kafka://host:port/topic, or kafka://host:port for all changelogs"
    if "@" in location.authority or location.options:
        raise InvalidInputError(
            ErrorCode.INVALID_LOCATION,
            f"{location}: found a user or options in the address; {form}, and settings in the file of {option}",
        )
    servers = [_SERVER.fullmatch(server) for server in location.authority.split(",")]
    if not all(server and int(server[1] or 1) in range(1, 1 << 16) for server in servers):
        raise InvalidInputError(ErrorCode.INVALID_LOCATION, f"{location}: {form}")
    return BrokerAddress(location.authority, config, option)


@contextmanager
def connected(address: BrokerAddress) -> Iterator[Connection]:
    """A connection, closed at the end.

    Raises UnsupportedError KAFKA_NOT_INSTALLED, InvalidInputError INVALID_OPTION for settings, and NO_ACCESS for
    brokers that do not answer or refuse.
    """
    client = _client()
    said: list[str] = []
    consumer = _made(address, client, client.Consumer, {**_READING, **_common(address, said), **_READERS_OWN})
    try:
        yield Connection(address, client, consumer, said)
    finally:
        consumer.close()


def administrator(address: BrokerAddress) -> Connection:
    """A connection that asks about groups, topics and their ends; it need not be closed. Raises as `connected`."""
    client = _client()
    said: list[str] = []
    importlib.import_module("confluent_kafka.admin")
    return Connection(address, client, _made(address, client, client.admin.AdminClient, _common(address, said)), said)


def producer_settings(address: BrokerAddress) -> dict[str, Any]:
    """The settings of a producer. Raises InvalidInputError INVALID_OPTION."""
    return {**_common(address, []), "logger": _silent()}


_READING: Mapping[str, Any] = {
    "isolation.level": "read_committed",
    "check.crcs": True,
    "fetch.wait.max.ms": 50,
    "fetch.queue.backoff.ms": 10,
    "queued.max.messages.kbytes": 32 << 10,
}
_READERS_OWN: Mapping[str, Any] = {
    "group.id": "statestore",  # the client wants a name; no group of it is made
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
}


def _common(address: BrokerAddress, said: list[str]) -> dict[str, Any]:
    """The settings of every client of a broker; the newest errors of its connections go to ``said``."""
    given = _settings(address)
    return {
        "socket.connection.setup.timeout.ms": int(ANSWER_S * 1000),
        "log_level": 0,
        "client.id": "statestore",
        **given,
        "bootstrap.servers": address.servers,
        "error_cb": lambda error: said.append(_scrubbed(error.str(), given)),
    }


def _made(address: BrokerAddress, client: Any, kind: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
    try:
        return kind(dict(settings), logger=_silent())
    except (client.KafkaException, TypeError, ValueError) as error:
        # The text may hold a value; only the name of the setting is shown.
        named = sorted((name for name in _settings(address) if name in str(error)), key=len)
        what = f"setting {named[-1]!r}" if named else "a setting"
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"{address.option}: the client refuses {what}; expected names and values of librdkafka, such as "
            "security.protocol=SASL_SSL, sasl.mechanism, sasl.username",
        ) from None


def _client() -> Any:
    try:
        return importlib.import_module("confluent_kafka")
    except ImportError:
        raise UnsupportedError(
            ErrorCode.KAFKA_NOT_INSTALLED,
            "reading from a broker needs the package confluent-kafka; type: pip install 'statestore[kafka]', or read "
            "the topic's files",
        ) from None


def _settings(address: BrokerAddress) -> dict[str, str]:
    """The settings in the file of an address: a line each, ``name=value``; lines that begin with # are comments."""
    if address.config is None:
        return {}
    try:
        with Path(address.config).open("rb") as file:
            text = file.read(_MOST_BYTES).decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no UTF-8"
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"{address.option}: the file cannot be read ({reason}); name a file of properties",
        ) from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not name or name.startswith("#"):
            continue
        if not equals:
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                f"{address.option}: line {number} of the file has no '='; expected name=value",
            )
        if name in _OWN:
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                f"{address.option}: line {number} of the file sets {shown(name)}, which statestore sets itself; "
                "remove the line",
            )
        found[name] = value
    return found


def _scrubbed(text: str, given: Mapping[str, str]) -> str:
    """A text of the client library without any value of the settings."""
    for value in sorted(given.values(), key=len, reverse=True):
        text = text.replace(value, "…") if len(value) >= _LEAST_SECRET else text
    return " ".join(text.split())[:300]


def _silent() -> logging.Logger:
    """A logger for the client library's own remarks, which would go to standard error."""
    logger = logging.Logger("statestore.kafka")
    logger.addHandler(logging.NullHandler())
    return logger
