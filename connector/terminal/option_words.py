"""Messages of errors in the words of the command line: ``as_of=`` and ``batchId`` become ``--as-of`` and
``--batch-id``."""

from __future__ import annotations

import re

FLAGS = {
    "allow_external_access": "--allow-external-access",
    "as_of": "--as-of",
    "before": "--before",
    "columns": "--columns",
    "dry_run": "--dry-run",
    "end": "--to",
    "end_time": "--to",
    "end_version": "--to",
    "filter": "--where",
    "full": "--full",
    "history_retention": "--history-retention",
    "key_groups": "--key-groups",
    "older_than": "--older-than",
    "retention": "--retention",
    "segment_interval": "--segment-interval",
    "start": "--from",
    "start_time": "--from",
    "start_version": "--from",
    "version": "--version",
    "window_size": "--window-size",
}
_CALL = re.compile(r"\b(scan|expire|vacuum|compact|diff|changes|history|get)\(([a-z_]+)=([^()]*)\)")
_ARGUMENT = re.compile(r"(?<![\w'\"/?&.-])([a-z_]+)=(True|None)?(?=([^\s,;)]?))")
_SUBJECT = re.compile(r"(^|\] |, )([a-z]\w+)(?= is | selects )|(\bneeds |\boption )([a-z]\w+)(?= is |;| selects )")


def in_words_of_options(message: str) -> str:
    """Return the message with the names of arguments in Python and of options in Spark replaced by those of options.

    A name elsewhere in the message may be a column or a store, and stays.
    """
    flags = {**FLAGS, **_engine_flags()}

    def subject(found: re.Match[str]) -> str:
        before, name = found[1] if found[3] is None else found[3], found[2] or found[4]
        flag = flags.get(name)
        return found[0] if flag is None else f"{before.removesuffix('option ')}{flag}"

    message = _CALL.sub(lambda found: f"{found[1]} {found[2]}={found[3]}", message)
    return _SUBJECT.sub(subject, _ARGUMENT.sub(_flag_of_argument, message))


def _flag_of_argument(found: re.Match[str]) -> str:
    flag = FLAGS.get(found[1])
    if flag is None:
        return found[0]
    return flag if found[2] or not found[3] else f"{flag} "


def _engine_flags() -> dict[str, str]:
    from statestore.formats.engine_arguments import arguments_of_engines, flag

    return {option.name: flag(option.name) for option in arguments_of_engines().values()}
