"""Rows that the models return. Rows of real stores have the same fields in the same order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Encode = Callable[[Any], bytes]


class KeyValueRow(NamedTuple):
    key: Any
    value: Any


class WindowRow(NamedTuple):
    """A window lasts from ``start`` (inclusive) to ``end`` (exclusive), epoch milliseconds."""

    key: Any
    start: int
    end: int
    value: Any


class SessionRow(NamedTuple):
    """A session lasts from ``start`` to ``end``, both inclusive, epoch milliseconds."""

    key: Any
    start: int
    end: int
    value: Any


class LoggedRow(NamedTuple):
    """A changelog record: the bytes of the row's key, and of its value (None: deleted)."""

    key: bytes
    value: bytes | None


class PhysicalRow(NamedTuple):
    """A row as Kafka Streams has it on disk, in the directory ``segment``."""

    segment: str
    key: bytes
    value: bytes


def no_value_bytes(value: Any) -> bytes:
    """A stand-in for a model without a serializer of values: everything but the bytes of values works."""
    raise TypeError("this model was made without encode_value")
