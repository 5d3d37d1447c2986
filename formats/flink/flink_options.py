"""Options of reads of Flink's state, for every door."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from statestore.formats.engine import EngineOption
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.flink.java_classes.class_places import places_of
from statestore.formats.flink.java_classes.job_code import JobCode
from statestore.formats.flink.layouts.kryo_classes import Enums
from statestore.formats.flink.layouts.kryo_enums import CLASS, enum_of
from statestore.formats.flink.snapshot.operator_ids import operator_id
from statestore.formats.flink.streams.state_form import DECLARABLE
from statestore.formats.values.type_syntax import split_items

OPTIONS = (
    EngineOption("job", "text", "Of several jobs in a folder, the one with this id or its first digits."),
    EngineOption(
        "uids",
        "text",
        "Uids of operators, a,b,c: snapshots of Flink 1.x have only their hashes.",
        describes=True,
    ),
    EngineOption(
        "type",
        "text",
        "Types of states, operator.state=type; operator.state.key=type: names for fields, or how to read bytes of a "
        "serializer of the job's own, where utf is a text of Java's writeUTF, string one of Flink's StringSerializer; "
        "types of states of PyFlink; the form of a connector, such as kafka_split; or constants of an enum that Kryo "
        "writes, class:shop.Color=enum<RED, GREEN>.",
        describes=True,
    ),
    EngineOption(
        "classes",
        "text",
        "Jars of the job, or folders of its class files, a.jar,b.jar: values of Kryo are read by the classes in them, "
        "enums with the names of their constants.",
        describes=True,
    ),
    EngineOption(
        "allowOutsideFiles",
        "bool",
        "Read files that a snapshot on a local disk names outside of the folder with the job's folder; a forged "
        "one may name any.",
        describes=True,
    ),
)


@dataclass(frozen=True)
class FlinkSettings:
    """Facts about a job that a user gave. ``uids`` are by operator id, ``types`` by state and then by column.

    ``outside``: files outside of the folder with the job's folder are read, also on a local disk. ``enums`` are classes
    of the job and their constants, ``code`` has the others in the job's jars.
    """

    job: str | None = None
    uids: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    outside: bool = False
    enums: Enums = ()
    code: JobCode = field(default_factory=JobCode)


def settings_of(options: Mapping[str, str]) -> FlinkSettings:
    """Parse the options. Raises InvalidInputError INVALID_OPTION."""
    uids = [uid.strip() for uid in options.get("uids", "").split(",") if uid.strip()]
    types: dict[str, dict[str, str]] = {}
    enums: dict[str, tuple[str, ...]] = {}
    for item in split_items(options.get("type", "")):
        name, sign, text = item.partition("=")
        if not sign or not name.strip() or not text.strip():
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                f"option type has {shown(item)}; expected state=type, such as counts.total=struct<name: string, n: int>"
                ", and ; between two",
            )
        if name.strip().startswith(CLASS):
            _declare(enums, name.strip().removeprefix(CLASS).strip(), text)
            continue
        state, _, column = name.strip().rpartition(".")
        if column not in DECLARABLE or not state:
            state, column = name.strip(), ""
        if types.setdefault(state, {}).setdefault(column, text.strip()) != text.strip():
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION, f"option type has two types of {shown(name.strip())}; expected one"
            )
    outside = options.get("allowoutsidefiles", "false").lower() == "true"
    code = JobCode(places_of(options.get("classes", "")))
    for name, constants in enums.items():
        _check_same(name, constants, code)
    found = tuple(sorted(enums.items()))
    return FlinkSettings(options.get("job"), {operator_id(uid): uid for uid in uids}, types, outside, found, code)


def _check_same(name: str, constants: tuple[str, ...], code: JobCode) -> None:
    """Raise InvalidInputError INVALID_OPTION for a declared enum that the jars have with other constants."""
    found = code.class_named(name)
    if found is None or found.constants == constants:
        return
    other = "is no enum" if found.constants is None else f"has the constants {', '.join(found.constants)}"
    raise InvalidInputError(
        ErrorCode.INVALID_OPTION,
        f"option type declares {name} as enum<{', '.join(constants)}>, which {other} in {code}, given by option "
        "classes; leave one of them out",
    )


def _declare(enums: dict[str, tuple[str, ...]], class_name: str, text: str) -> None:
    """Add the enum that an item of the option declares. Raises InvalidInputError INVALID_OPTION."""
    try:
        name, constants = enum_of(class_name, text)
    except ValueError as error:
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"option type {error}") from None
    if enums.setdefault(name, constants) != constants:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"option type has two types of class {shown(name)}; expected one"
        )
