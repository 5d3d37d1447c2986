"""Settings of an edit of Flink's state: another max parallelism, other uids of operators, and state that is left out.

``max_parallelism`` is a number, ``rename_operator`` is ``old=new``, several with commas between, ``drop`` names
operators, or states as they are shown. An operator is named by its uid, its name or its id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError, shown
from statestore.formats.flink.edited_operators import CANONICAL
from statestore.formats.flink.edits.state_changes import unsupported
from statestore.formats.flink.flink_options import DROP, EDIT_SETTINGS, MAX_PARALLELISM, RENAME_OPERATOR
from statestore.formats.flink.snapshot.handle_fields import MAX_KEY_GROUPS
from statestore.formats.flink.snapshot.metadata import OperatorSnapshot
from statestore.formats.flink.snapshot.operator_ids import is_operator_id, operator_id
from statestore.formats.flink.snapshot_states import TIMER_STATE, Identity, OpenedSnapshot, ShownState

_MOST_SHOWN = 20
_WITHOUT_RECORDS = "take a savepoint, which has no such records"


@dataclass(frozen=True)
class NewName:
    """The id of a renamed operator, and its uid, None where only the id is given."""

    id: str
    uid: str | None


@dataclass(frozen=True)
class AskedSettings:
    """Settings of an edit of one snapshot, with operators by their ids.

    ``dropped`` are operators that the target lacks, ``without`` keyed states that it lacks, by operator and stored
    name, and ``without_elements`` lists and broadcast maps.
    """

    max_parallelism: int | None = None
    renamed: Mapping[str, NewName] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    without: Mapping[str, frozenset[str]] = field(default_factory=dict)
    without_elements: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def is_dropped(self, state: Identity) -> bool:
        """Return whether the target lacks a state."""
        operator, kind, stored = state
        states = {"keyed": self.without, "operator": self.without_elements}.get(kind, {})
        return operator in self.dropped or stored in states.get(operator, ())

    def target_id(self, operator: str) -> str:
        """The id that an operator has in the target."""
        return self.renamed[operator].id if operator in self.renamed else operator

    def head(self, operator: OperatorSnapshot) -> OperatorSnapshot:
        """An operator with the id, uid and max parallelism that it has in the target."""
        new = self.renamed.get(operator.id)
        if new is not None:
            operator = replace(operator, id=new.id, uid=new.uid)
        return operator if self.max_parallelism is None else replace(operator, max_parallelism=self.max_parallelism)


def asked_settings(snapshot: OpenedSnapshot, settings: Mapping[str, str]) -> AskedSettings:
    """The settings of an edit of a snapshot.

    Raises InvalidInputError INVALID_OPTION, UnsupportedError EDIT_UNSUPPORTED.
    """
    names = [each.name for each in EDIT_SETTINGS]
    for name in settings:
        if name not in names:
            raise _invalid(name, f"no setting of an edit of Flink's state; expected one of {', '.join(names)}")
    dropped, without, elements = _dropped(snapshot, settings.get(DROP, ""))
    renamed = _renamed(snapshot, settings.get(RENAME_OPERATOR, ""))
    for each in sorted(dropped & renamed.keys()):
        raise _invalid(RENAME_OPERATOR, f"operator {snapshot.labels[each]} is dropped by {DROP}; give one of the two")
    _check_distinct(snapshot, renamed, dropped)
    most = _max_parallelism(snapshot, settings.get(MAX_PARALLELISM))
    return AskedSettings(most, renamed, dropped, without, elements)


def check_settings(snapshot: OpenedSnapshot, asked: AskedSettings, edited: Sequence[str]) -> None:
    """Raise for state that does not fit the settings; ``edited`` are the states whose rows are edited.

    InvalidInputError INVALID_OPTION for edits of what is dropped, UnsupportedError EDIT_UNSUPPORTED for state that
    cannot be moved or left out.
    """
    path, labels = snapshot.files.path, snapshot.labels
    for state in snapshot.states().values():
        if asked.is_dropped(state.identity) and state.name in edited:
            raise _invalid(DROP, f"the edit has rows of state {state.name}, which is dropped; leave one of them out")
    for each in snapshot.metadata.operators:
        where = f"{path}, operator {labels[each.id]}"
        if each.id in asked.dropped and any(task.channels for task in each.subtasks):
            raise unsupported(
                where, f"records in flight to and from it would be lost with it; {_WITHOUT_RECORDS}, and edit that"
            )
        if each.id in asked.dropped:
            continue
        raw = {name for timers in snapshot.stored(each.id).timers for name in timers.states}
        if asked.without.get(each.id, frozenset()) & raw:
            raise unsupported(where, f"its timers lie in raw keyed state, which cannot be left out; {CANONICAL}")
        if asked.max_parallelism not in (None, each.max_parallelism):
            _check_moved(each, where)


def _check_moved(operator: OperatorSnapshot, where: str) -> None:
    """Raise UnsupportedError EDIT_UNSUPPORTED for state that has no place with another max parallelism."""
    if any(task.raw_keyed is not None for task in operator.subtasks):
        raise unsupported(where, f"it has raw keyed state, which no key group can be found for; {CANONICAL}")
    if any(task.channels for task in operator.subtasks):
        raise unsupported(
            where,
            "it has records in flight, which wait where the old max parallelism sends them; "
            f"{_WITHOUT_RECORDS}, and edit that",
        )
    if any(task.finished for task in operator.subtasks) and any(task.managed_keyed for task in operator.subtasks):
        raise unsupported(
            where,
            "some of its subtasks have finished; keep the max parallelism, or restart the job, take a savepoint while "
            "all subtasks run, and edit that",
        )


def notes_of_settings(snapshot: OpenedSnapshot, asked: AskedSettings) -> Iterator[str]:
    """Yield what a user has to know before a job starts from a target with these settings."""
    labels, after = snapshot.labels, asked.max_parallelism
    if after is not None:
        yield (
            f"the target has max parallelism {after}: start the job with pipeline.max-parallelism {after}, or without "
            "one, which then is that of the savepoint"
        )
        own = {each.max_parallelism for each in snapshot.metadata.operators if each.id not in asked.dropped}
        if len(own) > 1:
            found = ", ".join(map(str, sorted(own)))
            yield f"operators had several max parallelisms ({found}), which are all {after} in the target"
    for each, new in asked.renamed.items():
        called = f"id {new.id}" if new.uid is None else f"uid {new.uid!r} (id {new.id})"
        yield f"operator {labels[each]} has {called} in the target, which the job has to give it"
    for each in sorted(asked.dropped):
        yield (
            f"operator {labels[each]} is not in the target: a job that has it starts it without state, a source from "
            "where its options say, and a job without it needs no allowNonRestoredState for it"
        )
    for each, states in (*asked.without.items(), *asked.without_elements.items()):
        yield f"of operator {labels[each]} the target has no {', '.join(sorted(states))}, which begins anew"


def _max_parallelism(snapshot: OpenedSnapshot, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_KEY_GROUPS):
        raise _invalid(MAX_PARALLELISM, f"found {shown(text)}, expected a number from 1 to {MAX_KEY_GROUPS}")
    number = int(text)
    for each in snapshot.metadata.operators:
        if each.parallelism > number:
            raise _invalid(
                MAX_PARALLELISM,
                f"found {number}, and operator {snapshot.labels[each.id]} has {each.parallelism} subtasks; give that "
                "number or more, or restart the job with fewer, take a savepoint and edit that",
            )
    return number


def _renamed(snapshot: OpenedSnapshot, text: str) -> dict[str, NewName]:
    found: dict[str, NewName] = {}
    for item in _items(text):
        old, sign, new = (part.strip() for part in item.partition("="))
        if not sign or not old or not new:
            raise _invalid(RENAME_OPERATOR, f"found {shown(item)}, expected old=new, such as counts=totals")
        operator = _operator(snapshot, RENAME_OPERATOR, old)
        if operator.id in found:
            raise _invalid(RENAME_OPERATOR, f"operator {shown(old)} is named twice, expected once")
        is_id = is_operator_id(new)
        found[operator.id] = NewName(new.lower(), None) if is_id else NewName(operator_id(new), new)
    return found


def _check_distinct(snapshot: OpenedSnapshot, renamed: Mapping[str, NewName], dropped: frozenset[str]) -> None:
    """Check that no two operators of the target have one id."""
    taken: dict[str, str] = {}
    for each in snapshot.metadata.operators:
        if each.id in dropped:
            continue
        new = renamed[each.id].id if each.id in renamed else each.id
        if new in taken:
            two = f"{snapshot.labels[taken[new]]} and {snapshot.labels[each.id]}"
            raise _invalid(
                RENAME_OPERATOR, f"operators {two} would both have id {new}; give another uid, or drop one of the two"
            )
        taken[new] = each.id


_States = dict[str, frozenset[str]]
"""Stored names of states by their operators."""


def _dropped(snapshot: OpenedSnapshot, text: str) -> tuple[frozenset[str], _States, _States]:
    """The operators that are left out, and the keyed and the operator states of others that are."""
    operators: set[str] = set()
    states: dict[str, dict[str, set[str]]] = {"keyed": {}, "operator": {}}
    for item in _items(text):
        named = _operators_named(snapshot, item)
        if named:
            operators.add(_operator(snapshot, DROP, item).id)
            continue
        state = _state(snapshot, item)
        operator, kind, stored = state.identity
        if kind not in states:
            raise UnsupportedError(
                ErrorCode.EDIT_UNSUPPORTED,
                f"{snapshot.files.path}, state {state.name}: it is no keyed state, list or broadcast map, and is "
                f"dropped only with its whole operator: {DROP}={state.operator}",
            )
        states[kind].setdefault(operator, set()).add(stored)
    keyed, elements = (
        {operator: frozenset(each) for operator, each in found.items() if operator not in operators}
        for found in states.values()
    )
    return frozenset(operators), keyed, elements


def _state(snapshot: OpenedSnapshot, text: str) -> ShownState:
    """A state by the name by which it is shown, or by an operator and its stored name."""
    states = list(snapshot.states().values())
    found = [each for each in states if each.name == text]
    if not found:
        for dot in (at for at, sign in enumerate(text) if sign == "."):
            operators, named = _operators_named(snapshot, text[:dot]), text[dot + 1 :]
            for each in (each for operator in operators for each in states if each.identity[0] == operator.id):
                if named in (each.identity[2], each.identity[2].removeprefix(TIMER_STATE)):
                    found.append(each)
    if len(found) != 1:
        names, what = sorted(each.name for each in states), "several states" if found else "no operator and no state"
        raise _invalid(
            DROP,
            f"{snapshot.files.path} has {what} {shown(text)}; there are the operators {_listed(_labels(snapshot))}, "
            f"with the states {_listed(names)}",
        )
    return found[0]


def _operator(snapshot: OpenedSnapshot, setting: str, text: str) -> OperatorSnapshot:
    found = _operators_named(snapshot, text)
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(each.id for each in found)
        raise _invalid(setting, f"{len(found)} operators are called {shown(text)}; give the id of one: {ids}")
    raise _invalid(
        setting, f"{snapshot.files.path} has no operator {shown(text)}; there are {_listed(_labels(snapshot))}"
    )


def _operators_named(snapshot: OpenedSnapshot, text: str) -> list[OperatorSnapshot]:
    """The operators with an id, or a label, or else a uid or name."""
    operators, labels = snapshot.metadata.operators, snapshot.labels
    sure = [each for each in operators if text.lower() == each.id or text == labels[each.id]]
    return sure or [each for each in operators if text in (each.uid, each.name) or each.id == operator_id(text)]


def _labels(snapshot: OpenedSnapshot) -> list[str]:
    """The operators for messages, those with a name of their own first."""
    named = sorted((label, number) for number, label in snapshot.labels.items())
    return [
        *(f"{label} ({number})" for label, number in named if label != number),
        *(label for label, number in named if label == number),
    ]


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_SHOWN
    listed = ", ".join(names[:_MOST_SHOWN]) or "none"
    return f"{listed} and {more} more" if more > 0 else listed


def _items(text: str) -> Iterator[str]:
    return (item.strip() for item in text.split(",") if item.strip())


def _invalid(name: str, problem: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.INVALID_OPTION, f"setting {shown(name)} of an edit: {problem}")
