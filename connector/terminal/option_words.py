"""Messages of errors in the words of the command line: ``as_of=`` and ``batchId`` become ``--as-of`` and
``--batch-id``."""

from __future__ import annotations

import re

FLAGS = {
    "allow_external_access": "--allow-external-access",
    "as_of": "--as-of",
    "batched_changelog": "--batched-changelog",
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
    "num_segments": "--num-segments",
    "older_than": "--older-than",
    "retain_duplicates": "--retain-duplicates",
    "retention": "--retention",
    "segment_interval": "--segment-interval",
    "serde": "--serde",
    "start": "--from",
    "start_time": "--from",
    "start_version": "--from",
    "time_ordered": "--time-ordered",
    "version": "--version",
    "window_after": "--window-after",
    "window_before": "--window-before",
    "window_size": "--window-size",
}
PHRASES = {
    "milliseconds as an int (not negative), a timedelta of whole ones, or a text with units": (
        "milliseconds (not negative), or a text with units"
    ),
    "open it with open_store, or with store(…, if_missing='create'), which makes it only where it is missing, or "
    "drop_store it first": "choose another name, or remove it first with statestore drop",
    "create it with statestore.connect(…).create_store": "create it with statestore create",
    "create it with create_store or store(…, if_missing='create')": "create it with statestore create",
    "an int of epoch milliseconds, an aware datetime, or a text like": "epoch milliseconds, or a text like",
    "a warehouse made with statestore.connect,": "a warehouse, which statestore create makes,",
    "value: a keyed store": "--value: a keyed store",
    "True or False": "true or false",
}
"""Words that only Python has, and those of the command line."""
_CALL = re.compile(r"\b(scan|expire|vacuum|compact|diff|changes|history|get)\(([a-z_]+)=([^()]*)\)")
_ARGUMENT = re.compile(r"(?<![\w'\"/?&.-])([a-z_]+)=(True|None)?(?=([^\s,;)]?))")
_LIST = re.compile(r"(?:(?<=has the options )|(?<=; did you mean ))[a-z_]+(?:(?:, | and )[a-z_]+)*")
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

    for phrase, other in PHRASES.items():
        message = message.replace(phrase, other)
    message = _LIST.sub(lambda found: re.sub(r"[a-z_]+", lambda name: flags.get(name[0], name[0]), found[0]), message)
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
