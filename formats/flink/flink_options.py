"""Options of reads of Flink's state, for every door."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from statestore.formats.engine import EngineOption
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.flink.layouts.kryo_classes import Enums
from statestore.formats.flink.layouts.kryo_enums import CLASS, enum_of
from statestore.formats.flink.serializers.subclasses import Subclass, is_subclass, subclass_of
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
        "writes, class:shop.Color=enum<RED, GREEN>; or a subclass of a POJO that the file does not describe, "
        "class:shop.Dog=struct<barks: boolean> extends shop.Animal.",
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
    of the job and their constants, ``subclasses`` those of POJOs that a file does not describe.
    """

    job: str | None = None
    uids: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    outside: bool = False
    enums: Enums = ()
    subclasses: tuple[Subclass, ...] = ()


def settings_of(options: Mapping[str, str]) -> FlinkSettings:
    """Parse the options. Raises InvalidInputError INVALID_OPTION."""
    uids = [uid.strip() for uid in options.get("uids", "").split(",") if uid.strip()]
    types: dict[str, dict[str, str]] = {}
    enums: dict[str, tuple[str, ...]] = {}
    subclasses: dict[tuple[str, str], Subclass] = {}
    for item in split_items(options.get("type", "")):
        name, sign, text = item.partition("=")
        if not sign or not name.strip() or not text.strip():
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                f"option type has {shown(item)}; expected state=type, such as counts.total=struct<name: string, n: int>"
                ", and ; between two",
            )
        if name.strip().startswith(CLASS) and is_subclass(text):
            subclass = subclass_of(name.strip().removeprefix(CLASS).strip(), text)
            if subclasses.setdefault((subclass.base, subclass.name), subclass) != subclass:
                raise _two_types(subclass.name)
            continue
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
    found = tuple(sorted(enums.items()))
    declared = tuple(subclasses[key] for key in sorted(subclasses))
    return FlinkSettings(options.get("job"), {operator_id(uid): uid for uid in uids}, types, outside, found, declared)


def _declare(enums: dict[str, tuple[str, ...]], class_name: str, text: str) -> None:
    """Add the enum that an item of the option declares. Raises InvalidInputError INVALID_OPTION."""
    try:
        name, constants = enum_of(class_name, text)
    except ValueError as error:
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"option type {error}") from None
    if enums.setdefault(name, constants) != constants:
        raise _two_types(name)


def _two_types(class_name: str) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.INVALID_OPTION, f"option type has two types of class {shown(class_name)}; expected one"
    )
