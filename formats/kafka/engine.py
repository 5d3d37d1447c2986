"""Kafka Streams as an `Engine`: state directories of its applications, and changelog topics in files or of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from statestore.formats.engine_offer import Engine, EngineOption
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.places.folder import Folder
from statestore.formats.places.locations import Location

if TYPE_CHECKING:
    from statestore.formats.engine import Source

# The options of reads of Kafka Streams' stores, for every door. Times are milliseconds.


OPTIONS = (
    EngineOption("application", "text", "the application, where a state.dir has several", describes=True),
    EngineOption("kind", "text", "the kind of the store, such as timestamped-key-value or session", describes=True),
    EngineOption("keySerde", "text", "the serde of keys, such as string, long or avro:FILE", describes=True),
    EngineOption(
        "valueSerde", "text", "the serde of values, such as avro:URL or protobuf:FILE#MESSAGE", describes=True
    ),
    EngineOption("windowSize", "int", "the size of windows in milliseconds, for the ends of windows", describes=True),
    EngineOption("retention", "int", "the retention in milliseconds: marks rows that Kafka hides", describes=True),
    EngineOption("hideExpired", "bool", "leave out rows that Kafka hides, by the retention; false", describes=True),
    EngineOption("storesFile", "text", "a TOML file with all of these by store", describes=True),
    EngineOption("topologyFile", "text", "a file with what Topology.describe() prints", describes=True),
    EngineOption("untilOffset", "text", "the last offset of a changelog that is read, or 0:12,1:7", describes=True),
    EngineOption("untilTime", "text", "read a changelog up to the first record after this moment", describes=True),
    EngineOption("recordColumns", "text", "columns of exported records: value=payload,timestamp=ts", describes=True),
    EngineOption(
        "recordText",
        "text",
        "how texts of exported records are bytes: utf-8, hex, base64, or key=utf-8,value=base64",
        describes=True,
    ),
    EngineOption("recordSeparator", "text", "what stands between fields of exported records", describes=True),
    EngineOption("recordNull", "text", "the text that stands for null in exported records", describes=True),
    EngineOption("consumerConfig", "text", "a file with librdkafka's settings for kafka://host:port", describes=True),
    EngineOption(
        "allowUnflushed", "bool", "read stores whose rows may be in memory only; false", describes=True, unsettled=True
    ),
)


EDIT_SETTINGS = (
    EngineOption("partitions", "int", "the number of partitions of a changelog, for new keys"),
    EngineOption("erase_history", "bool", "deletes take all versions of a key from versioned stores; false"),
    EngineOption("records", "text", "a new file, .jsonl, that gets the records of all changelogs, too"),
    EngineOption("produce", "text", "kafka://host:port: the records are produced there, and read again"),
    EngineOption("produce_config", "text", "a file with librdkafka's settings for produce"),
    EngineOption("stopped", "bool", "the application is stopped, where its group cannot be described; false"),
)
"""The settings of an edit (`statestore.formats.kafka.edits`)."""
SCHEMES = ("kafka",)
"""``kafka://host:port,host:port/topic``: a broker, and one topic of it or all changelogs."""


def recognises(folder: Folder) -> bool:
    """Return whether a folder is a state directory, or has changelogs."""
    from statestore.formats.kafka.directory.applications import recognises

    if recognises(folder):
        return True
    from statestore.formats.kafka.changelog_files import recognises_changelogs

    return recognises_changelogs(folder)


def open_state(location: Location, options: Mapping[str, str]) -> Source:
    """Open the stores of an application, or the topics of changelogs.

    Raises InvalidInputError STATE_SELECTION, INVALID_OPTION, KAFKA_STORE_KIND or STORES_FILE, NotFoundError; about a
    broker also NO_ACCESS or INVALID_LOCATION, and UnsupportedError KAFKA_NOT_INSTALLED.
    """
    from statestore.formats.kafka.changelog_files import recognises_changelogs
    from statestore.formats.kafka.store_settings import settings_of
    from statestore.formats.places.folder import folder_at

    settings, config = settings_of(options), options.get("consumerconfig")
    if location.scheme in SCHEMES:
        from statestore.formats.kafka.changelog_source import open_broker

        return open_broker(location, settings, config)
    if config is not None:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"option consumerConfig goes with kafka://host:port, found {location}"
        )
    if recognises_changelogs(folder_at(location)):
        from statestore.formats.kafka.changelog_source import open_changelogs

        return open_changelogs(location, settings)
    from statestore.formats.kafka.source import open_directory

    return open_directory(location, settings)


ENGINE = Engine(
    "kafka",
    "state directory or changelog of a Kafka Streams application",
    OPTIONS,
    recognises,
    open_state,
    SCHEMES,
    includes_below=True,
    edit_settings=EDIT_SETTINGS,
)
