"""Facts of a state for users: its kind, columns, keys and types, and the operator that has it."""

from __future__ import annotations

from statestore.formats.engine import StateInfo
from statestore.formats.flink.serializers.type_names import shown
from statestore.formats.flink.snapshot.metadata import OperatorSnapshot
from statestore.formats.flink.snapshot_states import ShownState
from statestore.formats.flink.state_at import UNREADABLE
from statestore.formats.flink.streams.operator_rows import OperatorForm
from statestore.formats.flink.streams.raw_timers import EVENT, PROCESSING
from statestore.formats.flink.streams.state_form import LAST_ACCESS, PLACEMENT, STORED_BYTES, KeyedForm
from statestore.formats.jobs import KeyedKind


def state_info(state: str, found: ShownState, operator: OperatorSnapshot) -> StateInfo:
    """Facts for the seam about a state that is listed as ``state``."""
    words = operator_words(operator, found.operator)
    facts = {"operator": words, "parallelism": str(operator.parallelism)}
    form = found.form
    if form is None:
        facts["error"] = str(found.error)
        return StateInfo(state, "unreadable state", UNREADABLE, (), (), facts=facts, operator=words)
    if isinstance(form, OperatorForm):
        kind = "broadcast state" if form.mode == "broadcast" else f"operator {form.mode} list"
        facts["value_type"] = shown(form.value)
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
