"""The settings of an edit of a checkpoint, as users give them: texts, by the names of `EDIT_SETTINGS`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.spark.checkpoint.checkpoint import Provider
from statestore.formats.spark.edits.packed_streams import CODECS

_MOST_PARTITIONS = 100_000
_COUNT = re.compile(r"[1-9][0-9]{0,5}")
_BOOLEANS = ("true", "false")
_PROVIDERS: Mapping[str, Provider] = {"hdfs": "hdfs", "rocksdb": "rocksdb"}


@dataclass(frozen=True)
class EditSettings:
    """Properties that a copy of a checkpoint is to have; None: as the checkpoint is.

    ``sink`` is the place of the query's output, or `NO_SINK`.
    """

    partitions: int | None = None
    provider: Provider | None = None
    changelogs: bool | None = None
    codec: str | None = None
    compact: bool = False
    sink: str | None = None

    @property
    def layout(self) -> Collection[str]:
        """The names of the settings for which all state is written anew."""
        given = (
            ("partitions", self.partitions),
            ("provider", self.provider),
            ("changelogs", self.changelogs),
            ("codec", self.codec),
            ("compact", self.compact or None),
        )
        return [name for name, value in given if value is not None]


NO_SINK = "none"


def edit_settings(settings: Mapping[str, str]) -> EditSettings:
    """Parse settings of an edit whose names and kinds are right. Raises InvalidInputError INVALID_OPTION."""
    partitions = settings.get("partitions")
    if partitions is not None and (not _COUNT.fullmatch(partitions) or int(partitions) > _MOST_PARTITIONS):
        raise invalid_setting("partitions", f"is {shown(partitions)}; expected a number from 1 to {_MOST_PARTITIONS}")
    provider = _one_of("provider", settings, tuple(_PROVIDERS))
    changelogs, compact = (_one_of(name, settings, _BOOLEANS) for name in ("changelogs", "compact"))
    if changelogs is not None and provider == "hdfs":
        raise invalid_setting(
            "changelogs", "is given, and only RocksDB has them; leave it out, or choose provider rocksdb"
        )
    return EditSettings(
        None if partitions is None else int(partitions),
        None if provider is None else _PROVIDERS[provider],
        None if changelogs is None else changelogs == "true",
        _one_of("codec", settings, CODECS),
        compact == "true",
        settings.get("sink"),
    )


def _one_of(name: str, settings: Mapping[str, str], allowed: Collection[str]) -> str | None:
    value = settings.get(name)
    if value is not None and value not in allowed:
        raise invalid_setting(name, f"is {shown(value)}; expected one of {', '.join(allowed)}")
    return value


def invalid_setting(name: str, problem: str) -> InvalidInputError:
    """The error for a setting that is wrong."""
    return InvalidInputError(ErrorCode.INVALID_OPTION, f"option {name} {problem}")
