"""The options of reads and writes, each with one name, spelled as usual in Spark, Python and the command line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Literal

from statestore.catalog.reads.arguments import RANGE, right_names
from statestore.formats.engine_arguments import flag, python_name
from statestore.formats.engine_offer import EngineOption
from statestore.formats.engines import engine_options, engines
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.notices import STRICT
from statestore.formats.state_table import Query
from statestore.formats.values.times import session_time, time_zone

Use = Literal["read", "write", "readStream", "writeStream"]


@dataclass(frozen=True)
class Option:
    """An option in its three spellings; docs/reference.md is generated from it.

    ``name`` is the name in Spark, which ignores case. ``python`` is the argument in Python, and ``command`` the option
    of the command line, with the same meaning. ``kind``: time, int, bool, names or text.
    """

    name: str
    uses: tuple[Use, ...]
    kind: str
    meaning: str
    python: str
    command: str = ""


_BATCH: tuple[Use, ...] = ("read",)
_READS: tuple[Use, ...] = ("read", "readStream")
_WRITES: tuple[Use, ...] = ("write", "writeStream")

OPTIONS = (
    Option("timestampAsOf", _BATCH, "time", "the state as it was at this moment", "scan(as_of=)", "scan --as-of"),
    Option("versionAsOf", _BATCH, "int", "the state as this commit recorded it", "scan(version=)", "scan --version"),
    Option("history", _BATCH, "bool", "every version with its interval", "history()", "history"),
    Option(
        "readChangeFeed", _READS, "bool", "the change feed, which is all that a stream can read", "changes()", "changes"
    ),
    Option(
        "startingVersion",
        _READS,
        "int",
        "changes from this commit on, inclusive; in a stream also `latest`: changes after the newest commit",
        "changes(start_version=)",
        "changes --from",
    ),
    Option(
        "endingVersion",
        _BATCH,
        "int",
        "changes up to this commit, inclusive",
        "changes(end_version=)",
        "changes --to",
    ),
    Option(
        "startingTimestamp",
        _READS,
        "time",
        "changes or history from this state time on, inclusive",
        "changes(start_time=), history(start_time=)",
        "changes --from, history --from",
    ),
    Option(
        "endingTimestamp",
        _BATCH,
        "time",
        "changes or history up to this state time, inclusive",
        "changes(end_time=), history(end_time=)",
        "changes --to, history --to",
    ),
    Option("columns", _READS, "names", "only these columns, separated by commas", "scan(columns=)", "scan --columns"),
    Option(
        "intervalsAsNumbers",
        _READS,
        "bool",
        "of a checkpoint: read intervals of months as int and calendar intervals as "
        "struct<months,days,microseconds>, which PySpark can collect; default false",
        "",
    ),
    Option(
        STRICT,
        _BATCH,
        "bool",
        "of an engine's state, and of a captured store: refuse rows that may not be current or complete, in place of a "
        "notice; default false",
        "inspect(strict=)",
        "--strict",
    ),
    Option("maxVersionsPerTrigger", ("readStream",), "int", "at most this many commits in a micro-batch", ""),
    Option(
        "txnAppId",
        _WRITES,
        "text",
        "application of the transaction id; with txnVersion a repeated write has no effect. In a stream "
        "the default is the query id, and the batch is the number of the micro-batch",
        "commit(transaction=)",
    ),
    Option("txnVersion", ("write",), "int", "batch of the transaction id", "commit(transaction=)"),
    Option(
        "byKeyGroups",
        ("write",),
        "bool",
        "move rows to tasks by ranges of key groups first, so that no key is left to the driver; the history is the "
        "same. For bulk imports into versioned stores without a retention; default false",
        "",
    ),
)


def options_of_engines() -> list[Option]:
    """The options for reads that engines define."""
    return [
        Option(
            option.name,
            _BATCH,
            option.kind,
            f"of a {engine.expects}: {option.meaning}",
            f"inspect({python_name(option.name)}=)",
            flag(option.name),
        )
        for engine in engines()
        for option in engine.options
    ]


# Options that Spark adds by itself, and the session's time zone, which `register` passes on.
SESSION_TIME_ZONE = "statestoreSessionTimeZone"
UNSEEN = frozenset(n.lower() for n in ("path", "paths", "owner", "provider", "checkpointLocation", SESSION_TIME_ZONE))
S3A = "fs.s3a."
"""Settings of Hadoop's S3 client begin with this; they may be options of a read in Spark."""
LATEST = "latest"
_RANGE = {
    "start_version": "startingVersion",
    "end_version": "endingVersion",
    "start_time": "startingTimestamp",
    "end_time": "endingTimestamp",
}


@dataclass(frozen=True)
class StreamStart:
    """The start of a stream of changes, and the size of its micro-batches.

    ``version``: start with the changes of this commit; None: with the oldest kept commit. ``latest``: start after the
    commit that is the newest when the query first starts. ``time``: only changes from this state time on, epoch
    microseconds. ``limit``: the most versions in a micro-batch.
    """

    version: int | None = None
    latest: bool = False
    time: int | None = None
    limit: int | None = None


def checked_options(options: Mapping[str, str], *uses: Use) -> dict[str, str]:
    """Options by lower-case name; InvalidInputError UNKNOWN_OPTION names the nearest valid option for ``uses``."""
    names = {option.name.lower(): option.name for option in OPTIONS if set(uses) & set(option.uses)}
    checked = {}
    for name, value in options.items():
        lowered = name.lower()
        if lowered in UNSEEN or lowered.startswith(S3A):  # settings of a storage are none of the read
            continue
        if lowered not in names and not ("read" in uses and engine_options(lowered)):
            meant = [_RANGE[word] for word in right_names(name, RANGE) if _RANGE[word] in names.values()]
            near, alike = (difflib.get_close_matches(lowered, names, 1, least) for least in (0.8, 0.5))
            close = [names[word] for word in near] or meant or [names[word] for word in alike]
            hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(names.values())}"
            raise InvalidInputError(ErrorCode.UNKNOWN_OPTION, f"option {name!r} does not exist for a {uses[0]}; {hint}")
        checked[lowered] = value
    return checked


def shape_of(written: Mapping[str, str]) -> Query:
    """The part of a query that decides the columns: Spark asks for them before it reports whether the read is a
    stream."""
    options = checked_options(written, "read", "readStream")
    history, changes = _bool(options, "history"), _bool(options, "readChangeFeed")
    _refuse_mixed(options, history, changes)
    if options.get("startingversion", "").strip().lower() != LATEST and "maxversionspertrigger" not in options:
        return query_of(written)
    return Query(columns=_names(options, "columns"), mode="changes" if changes else "state")


def intervals_as_numbers(written: Mapping[str, str]) -> bool:
    """Return whether intervals that PySpark cannot represent are read as numbers."""
    return _bool({name.lower(): value for name, value in written.items()}, "intervalsAsNumbers")


def query_of(written: Mapping[str, str]) -> Query:
    """The query that read options describe.

    Times are ISO-8601 with a zone, or epoch milliseconds. A time without a zone is taken in the session's zone, if
    `register` has passed it on. Raises InvalidInputError UNKNOWN_OPTION, INVALID_OPTION, NAIVE_DATETIME, …
    """
    options = checked_options(written, "read")
    times = {name: _time(options, name, written) for name in ("timestampAsOf", "startingTimestamp", "endingTimestamp")}
    numbers = {name: _int(options, name) for name in ("versionAsOf", "startingVersion", "endingVersion")}
    # An engine's own change feed is a table of its own, and all its rows are read.
    own_feed = any(option.feed for option in _engine_options(options))
    history = _bool(options, "history")
    changes = _bool(options, "readChangeFeed") and not own_feed
    _refuse_two_feeds(options, own_feed)
    _refuse_mixed(options, history, changes)
    columns = _names(options, "columns")
    version = numbers["versionAsOf"] if own_feed else _alias(options, "versionAsOf", numbers["versionAsOf"])
    return Query(
        columns=columns,
        as_of=times["timestampAsOf"],
        version=version,
        mode="history" if history else "changes" if changes else "state",
        start_version=numbers["startingVersion"],
        end_version=numbers["endingVersion"],
        start_time=times["startingTimestamp"],
        end_time=times["endingTimestamp"],
    )


def stream_query_of(written: Mapping[str, str]) -> tuple[Query, StreamStart]:
    """The query that the options of a stream describe, and its start; errors as `query_of`."""
    options = checked_options(written, "readStream")
    if not _bool(options, "readChangeFeed"):
        raise InvalidInputError(
            ErrorCode.CHANGE_FEED_ONLY,
            "a stream reads the change feed; set option readChangeFeed=true, or read the state with spark.read",
        )
    _refuse_mixed(options, False, True)
    latest = options.get("startingversion", "").strip().lower() == LATEST
    limit = _int(options, "maxVersionsPerTrigger")
    if limit is not None and limit < 1:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"option maxVersionsPerTrigger is {limit}; expected 1 or more"
        )
    start = StreamStart(
        None if latest else _int(options, "startingVersion"),
        latest,
        _time(options, "startingTimestamp", written),
        limit,
    )
    return Query(columns=_names(options, "columns"), mode="changes"), start


def application_of(written: Mapping[str, str]) -> str | None:
    """The application for the transaction ids of a streaming write, if its options name one."""
    return checked_options(written, "writeStream").get("txnappid")


def transaction_of(written: Mapping[str, str]) -> tuple[str, int] | None:
    """The transaction id in the options of a write, which must have both parts or neither."""
    options = checked_options(written, "write")
    application, batch = options.get("txnappid"), _int(options, "txnVersion")
    if (application is None) != (batch is None):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, "txnAppId and txnVersion make one transaction id; give both or none"
        )
    return None if application is None or batch is None else (application, batch)


def is_by_key_groups(written: Mapping[str, str]) -> bool:
    """Return whether a write moves its rows by ranges of key groups first."""
    return _bool(checked_options(written, "write"), "byKeyGroups")


def _engine_options(options: Mapping[str, str]) -> list[EngineOption]:
    """The options in use that only an engine defines."""
    ours = {option.name.lower() for option in OPTIONS}
    return [accepted[0][1] for name in options if name not in ours and (accepted := engine_options(name))]


def _alias(options: Mapping[str, str], name: str, own: int | None) -> int | None:
    """The number given under an engine's name for an option, or else under the option's own name."""
    spelled = [_int(options, option.name) for option in _engine_options(options) if option.alias == name]
    return spelled[0] if spelled else own


def _refuse_two_feeds(options: Mapping[str, str], own_feed: bool) -> None:
    if not _bool(options, "readChangeFeed"):
        return
    theirs = _engine_options(options)
    bounds = {"startingversion", "endingversion", "startingtimestamp", "endingtimestamp"} & set(options)
    if bounds and own_feed:
        feed = next(option.name for option in theirs if option.feed)
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"option {min(bounds)} asks for changes of rows, {feed} for the engine's own change feed; give one kind of "
            "bounds",
        )
    aliases = [option.name for option in theirs if option.alias == "versionAsOf"]
    if aliases and not own_feed:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"{aliases[0]} does not go with readChangeFeed; give startingVersion"
        )


def _refuse_mixed(options: Mapping[str, str], history: bool, changes: bool) -> None:
    if history and changes:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, "history and readChangeFeed are two different reads; give one"
        )
    ranged = {"startingversion", "endingversion"} & set(options)
    if ranged and not changes:
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"option {min(ranged)} needs readChangeFeed=true")
    timed = {"startingtimestamp", "endingtimestamp"} & set(options)
    if timed and not (changes or history):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"option {min(timed)} needs readChangeFeed=true or history=true"
        )
    if ranged and timed:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, "changes are selected by version or by timestamp; give one kind of bounds"
        )
    if "timestampasof" in options and (history or changes):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            "timestampAsOf asks for one moment; with history or changes give startingTimestamp",
        )
    if "versionasof" in options and changes:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, "versionAsOf does not go with readChangeFeed; give startingVersion"
        )


def _zone(written: Mapping[str, str]) -> tzinfo | None:
    name = next((value for key, value in written.items() if key.lower() == SESSION_TIME_ZONE.lower()), None)
    return None if name is None else time_zone(name, "the session's time zone")


def _time(options: Mapping[str, str], name: str, written: Mapping[str, str]) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    return session_time(text, f"option {name}", lambda: _zone(written))


def _names(options: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    text = options.get(name.lower())
    if text is None:
        return None
    names = tuple(part.strip() for part in text.split(","))
    twice = sorted({part for part in names if names.count(part) > 1})
    if not all(names) or twice:
        problem = f"names {twice[0]!r} twice" if twice and all(names) else "holds an empty name"
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"option {name} is {text!r}, which {problem}; expected names like a,b"
        )
    return names


def _int(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text):  # int() would also accept 1_000
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"option {name} is {text!r}; expected a whole number")
    return int(text)


def _bool(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name.lower(), "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"option {name} is {text!r}; expected true or false")
    return text == "true"
