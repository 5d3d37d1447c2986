"""Facts of a state for users: its kind, columns, keys and types, and the operator that has it."""

from __future__ import annotations

from statestore.formats.engine import StateInfo
from statestore.formats.flink.serializers.flink_types import FlinkType, Opaque, PythonBytes, replaced
from statestore.formats.flink.serializers.python_types import OWN_STATES, PREFIX
from statestore.formats.flink.serializers.type_names import shown
from statestore.formats.flink.snapshot.metadata import OperatorSnapshot
from statestore.formats.flink.snapshot_states import ShownState
from statestore.formats.flink.state_at import UNREADABLE
from statestore.formats.flink.streams.operator_rows import COORDINATOR, OperatorForm
from statestore.formats.flink.streams.raw_timers import EVENT, PROCESSING
from statestore.formats.flink.streams.state_form import LAST_ACCESS, PLACEMENT, STORED_BYTES, KeyedForm
from statestore.formats.jobs import KeyedKind

_KINDS = {"broadcast": "broadcast state", COORDINATOR: "coordinator state"}


def _python_type_needed(state: str, *, is_map: bool) -> str:
    """Say which option gives the type of a state of PyFlink."""
    _, _, name = state.partition(PREFIX)
    if name in OWN_STATES:
        return f"no file says it: --type '{state}={OWN_STATES[name]}', unless the job has a state {name!r} of its own"
    example = "map<string, bigint>" if is_map else "bigint"
    return (
        f"no file says it: give the type of the descriptor of {name!r} in the job, such as "
        f"--type '{state}={example}', or pickle where the job gave none"
    )


def _remedy_in(form: KeyedForm | OperatorForm) -> str:
    """The option that reads the first part of a form which is shown as bytes, "" where none is known."""
    found: list[str] = []

    def note(kind: FlinkType) -> FlinkType:
        if isinstance(kind, Opaque) and kind.remedy:
            found.append(kind.remedy)
        return kind

    replaced(form, note)
    return found[0] if found else ""


def state_info(state: str, found: ShownState, operator: OperatorSnapshot) -> StateInfo:
    """Facts for the seam about a state that is listed as ``state``."""
    words = operator_words(operator, found.operator)
    facts = {"operator": words, "parallelism": str(operator.parallelism)}
    form = found.form
    if form is None:
        if operator.max_parallelism > 0:
            facts["max_parallelism"] = str(operator.max_parallelism)
        # `_metadata` names the states of an operator, but not the keyed ones, whose names are in their files.
        lists = (each.managed_operator for each in operator.subtasks)
        names = dict.fromkeys(state.name for each in lists if each is not None for state in each.states)
        if names:
            facts["operator_states"] = ", ".join(names)
        facts["error"] = str(found.error)
        return StateInfo(state, "unreadable state", UNREADABLE, (), (), facts=facts, operator=words)
    if isinstance(form, OperatorForm):
        kind = _KINDS.get(form.mode, f"operator {form.mode} list")
        facts["value_type"] = shown(form.value)
        if form.connector is not None:
            facts["written_by"] = form.connector.about
            facts["form"] = form.connector.name
        elif isinstance(form.value, PythonBytes):
            facts["type_needed"] = _python_type_needed(state, is_map=True)
        elif remedy := _remedy_in(form):
            facts["type_needed"] = remedy
        placement = tuple(name for name in (STORED_BYTES,) if name in form.schema.names)
        columns, rows = form.schema, form.row_key
        return StateInfo(state, kind, columns, rows, rows, placement=placement, facts=facts, operator=words)
    facts |= {"max_parallelism": str(operator.max_parallelism), "key_type": shown(form.key)}
    if form.has_namespace:
        facts["namespace_type"] = shown(form.namespace)
    if form.map_key is not None:
        facts["map_key_type"] = shown(form.map_key)
    if form.kind != "timers":
        facts["value_type"] = " or ".join(dict.fromkeys(shown(each.element) for each in (form, *found.other_forms)))
    if isinstance(form.element, PythonBytes) or isinstance(form.map_key, PythonBytes):
        facts["type_needed"] = _python_type_needed(state, is_map=form.map_key is not None)
    elif remedy := _remedy_in(form):
        facts["type_needed"] = remedy
    if form.whole:
        facts["elements"] = (
            f"not divided, for nothing says where one ends that has {shown(form.element)}; they are, and have their "
            "fields, once that can be read"
        )
    if LAST_ACCESS in found.schema.names:
        facts["time_to_live"] = "rows that have expired are included"
    key = ("key", "namespace") if form.has_namespace else ("key",)
    kind = _shown_kind(form)
    lookups = tuple(dict.fromkeys((("key",), key, form.row_key)))
    return StateInfo(state, kind, found.schema, key, form.row_key, lookups, PLACEMENT, facts=facts, operator=words)


def operator_words(operator: OperatorSnapshot, label: str) -> str:
    """Return an operator as users see it: its label, and its other names."""
    more = [each for each in (operator.name, operator.id) if each and each != label]
    return f"{label} ({', '.join(more)})" if more else label


def _shown_kind(form: KeyedForm) -> str:
    if form.kind == "timers":
        if form.name.startswith(EVENT):
            return "event timers"
        return "processing timers" if form.name.startswith(PROCESSING) else "timers"
    return f"{'value' if form.kind == 'unknown' else form.kind} state"


def keyed_kind(form: KeyedForm) -> KeyedKind:
    if form.kind == "timers":
        return "processing timers" if form.name.startswith(PROCESSING) else "event timers"
    return "value" if form.kind == "unknown" or form.whole else form.kind
