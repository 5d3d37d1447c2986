"""Facts about a job that a user gives with the options of a read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.flink.java_classes.class_places import places_of
from statestore.formats.flink.java_classes.job_code import JobCode
from statestore.formats.flink.layouts.class_declarations import CLASS, check_declared, class_of, declared_text
from statestore.formats.flink.serializers.job_classes import JobClass
from statestore.formats.flink.serializers.subclasses import Subclass, is_subclass, subclass_of
from statestore.formats.flink.snapshot.operator_ids import operator_id
from statestore.formats.flink.streams.state_form import DECLARABLE
from statestore.formats.values.type_syntax import split_items


@dataclass(frozen=True)
class FlinkSettings:
    """Facts about a job that a user gave. ``uids`` are by operator id, ``types`` by state and then by column.

    ``outside``: files outside of the folder with the job's folder are read, also on a local disk. ``classes`` are
    those of the job that are declared, ``code`` has the others in the job's jars. ``subclasses`` are those of POJOs
    that a file does not describe.
    """

    job: str | None = None
    uids: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    outside: bool = False
    classes: tuple[JobClass, ...] = ()
    code: JobCode = field(default_factory=JobCode)
    subclasses: tuple[Subclass, ...] = ()


def settings_of(options: Mapping[str, str]) -> FlinkSettings:
    """Parse the options. Raises InvalidInputError INVALID_OPTION."""
    uids = [uid.strip() for uid in options.get("uids", "").split(",") if uid.strip()]
    types: dict[str, dict[str, str]] = {}
    classes: dict[str, JobClass] = {}
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
            _declare(classes, name.strip().removeprefix(CLASS).strip(), text)
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
    for each in classes.values():
        _check_same(each, code)
    found = tuple(classes[name] for name in sorted(classes))
    if not code:
        try:
            check_declared(found)
        except ValueError as error:
            raise InvalidInputError(ErrorCode.INVALID_OPTION, f"option type {error}") from None
    by_id, extending = {operator_id(uid): uid for uid in uids}, tuple(subclasses[key] for key in sorted(subclasses))
    return FlinkSettings(options.get("job"), by_id, types, outside, found, code, extending)


def _check_same(declared: JobClass, code: JobCode) -> None:
    """Raise InvalidInputError INVALID_OPTION for a declared class that the jars have with other constants or fields."""
    found = code.class_named(declared.name)
    if found is None or (found.constants == declared.constants and _fields(found) == _fields(declared)):
        return
    raise InvalidInputError(
        ErrorCode.INVALID_OPTION,
        f"option type declares {_shown(declared)}, which is {_shown(found)} in {code}, given by option classes; leave "
        "one of them out",
    )


def _fields(found: JobClass) -> set[tuple[str, str, int]]:
    """The fields of a class that Kryo writes; those of an enum are none."""
    fields = () if found.constants is not None else found.fields
    return {
        (each.name, each.type.variable or each.type.name, each.type.dimensions)
        for each in fields
        if not each.is_synthetic
    }


def _shown(found: JobClass) -> str:
    if found.constants is not None:  # whether they have bodies is not compared
        found = replace(found, is_final=True)
    return f"{found.name} as {declared_text(found)}"


def _declare(classes: dict[str, JobClass], named: str, text: str) -> None:
    """Add the class that an item of the option declares. Raises InvalidInputError INVALID_OPTION."""
    try:
        found = class_of(named, text)
    except ValueError as error:
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"option type {error}") from None
    if classes.setdefault(found.name, found) != found:
        raise _two_types(found.name)


def _two_types(class_name: str) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.INVALID_OPTION, f"option type has two types of class {shown(class_name)}; expected one"
    )
