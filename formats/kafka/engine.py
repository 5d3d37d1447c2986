"""Kafka Streams as an `Engine`: the state directories of its applications."""

from __future__ import annotations

from collections.abc import Mapping

from statestore.formats.engine import Engine, Source
from statestore.formats.kafka.store_options import OPTIONS
from statestore.formats.places.folder import Folder
from statestore.formats.places.locations import Location


def recognises(folder: Folder) -> bool:
    """Return whether a folder is a state directory."""
    from statestore.formats.kafka.directory.applications import recognises

    return recognises(folder)


def open_state(location: Location, options: Mapping[str, str]) -> Source:
    """Open the stores of an application.

    Raises InvalidInputError STATE_SELECTION, INVALID_OPTION, KAFKA_STORE_KIND or STORES_FILE, NotFoundError.
    """
    from statestore.formats.kafka.source import open_directory
    from statestore.formats.kafka.store_settings import settings_of

    return open_directory(location, settings_of(options))


ENGINE = Engine("kafka", "state directory of a Kafka Streams application", OPTIONS, recognises, open_state)
