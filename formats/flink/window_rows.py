"""Rows that belong to a window beside its contents, and change along with them.

The operator of windows (``WindowOperator`` of the DataStream API) keeps the contents of a window under its key and the
window as namespace. Under the same namespace are its timers, and what its trigger or function keeps for it. Windows
that merge, such as sessions, keep their contents under the first one of them; the list ``merging-window-set`` has the
merged window, under which timers and triggers are, with the one that has the contents.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.flink.edits.key_search import KeySearch, columns_of, distinct, one_array, search_of
from statestore.formats.flink.followed_rows import OperatorStates, is_timers, namespace_names
from statestore.formats.flink.serializers.flink_types import VOID, Basic
from statestore.formats.flink.state_at import KeyedAt
from statestore.formats.flink.streams.state_form import (
    KEY,
    MICROS,
    NAMESPACE,
    POSITION,
    TIMESTAMP,
    TIMESTAMP_MS,
    VALUE,
    KeyedForm,
)
from statestore.formats.kernels.arrays import Ints

CONTENTS, _MERGED, _SERVICE, _COUNT = "window-contents", "merging-window-set", "window-timers", "count"
_MOST_MOMENTS = 8
"""Distances of timers from the end of their windows; more are of a trigger that does not go by that."""


def follow_windows(states: OperatorStates) -> None:
    """Let go what belongs to windows whose contents go, and let come the timers of windows that come."""
    contents = states.named(CONTENTS)
    if contents is None or states.unreadable:
        return
    if states.states[contents].form.namespace == VOID:
        _follow_counts(states, contents)
    if states.states[contents].form.namespace != Basic("time_window"):
        return
    names = namespace_names(states.states[contents])
    gone, come = (rows.select(names) for rows in (states.removed(contents), states.added(contents)))
    every = pa.concat_tables([gone, come])
    if not every.num_rows:
        return
    keys, _, first = distinct(columns_of(every, names))
    windows = every.take(pa.array(first))
    before = _counts_of(keys, states.stored(contents, names, keys, names))
    after = states.remaining(contents, names, keys)
    closed = windows.filter(pa.array((before > 0) & (after == 0)))
    opened = windows.filter(pa.array((before == 0) & (after > 0)))
    merged = states.named(_MERGED)
    if merged is not None:
        closed = _closed_sessions(states, merged, closed)
        opened = _opened_sessions(states, merged, opened)
    if closed.num_rows:
        _close(states, contents, closed)
    if opened.num_rows:
        _open(states, opened)


def _counts_of(keys: KeySearch, rows: pa.Table) -> Ints:
    return np.bincount(keys.found(columns_of(rows, rows.schema.names)), minlength=len(keys))


# Windows over all time, which a trigger ends by a count


def _follow_counts(states: OperatorStates, contents: str) -> None:
    """Let the counts of triggers go with windows whose contents go, and tell of those that may be wrong otherwise.

    ``CountTrigger`` keeps how many records came since the window fired last, which contents do not tell: an evictor
    leaves some of them, and a sum has no records.
    """
    count = states.named(_COUNT)
    form = None if count is None else states.states[count].form
    if count is None or form is None or (form.kind, form.element, form.namespace) != ("reducing", Basic("long"), VOID):
        return
    every = pa.concat_tables([rows.select([KEY]) for rows in (states.removed(contents), states.added(contents))])
    if not every.num_rows:
        return
    keys, _, first = distinct(columns_of(every, [KEY]))
    windows = every.take(pa.array(first))
    before = _counts_of(keys, states.stored(contents, [KEY], keys, [KEY]))
    after = states.remaining(contents, [KEY], keys)
    closed = windows.filter(pa.array((before > 0) & (after == 0)))
    if closed.num_rows:
        gone = states.let_go(count, states.stored(count, [KEY], search_of(closed, [KEY])))
        if gone:
            states.notes.append(f"{gone} counts of windows whose contents are removed go along, in {count}")
    others = windows.filter(pa.array((after > 0) & (before != after)))
    named = pa.concat_tables([states.removed(count), states.added(count)])
    if others.num_rows and named.num_rows:
        others = others.filter(pa.array(search_of(named, [KEY]).found(columns_of(others, [KEY])) < 0))
    if others.num_rows:
        states.notes.append(
            f"{others.num_rows} windows have more or fewer contents, and their triggers go on with the counts in "
            f"{count}: change these in the same edit where a window is to end earlier or later"
        )


# Windows that merge


def _closed_sessions(states: OperatorStates, merged: str, closed: pa.Table) -> pa.Table:
    """Let the entries of sessions go whose contents go; return them as the windows that timers have."""
    if not closed.num_rows:
        return closed
    rows = states.stored(merged, [KEY], search_of(closed, [KEY]))
    mine = rows.filter(pa.array(_found(closed, _windows(rows, 1)) >= 0))
    count = states.let_go(merged, mine)
    if count:
        states.notes.append(f"{count} entries of sessions whose contents are removed go along, in {merged}")
    return _windows(mine, 0)


def _opened_sessions(states: OperatorStates, merged: str, opened: pa.Table) -> pa.Table:
    """Let entries come for sessions whose contents come, unless the edit has them; return the windows of timers."""
    if not opened.num_rows:
        return opened
    own = states.added(merged)
    given = own.filter(pa.array(_found(opened, _windows(own, 1)) >= 0))
    missing = opened.filter(pa.array(_found(_windows(given, 1), opened) < 0)) if given.num_rows else opened
    if missing.num_rows:
        schema = own.schema
        window = one_array(missing, NAMESPACE)
        kind = schema.field(VALUE).type
        pairs = pa.StructArray.from_arrays([window, window], fields=[kind.field(0), kind.field(1)])
        columns = {KEY: one_array(missing, KEY), POSITION: pa.nulls(missing.num_rows, pa.int32()), VALUE: pairs}
        states.let_come(merged, pa.Table.from_arrays([columns[each.name] for each in schema], schema=schema))
        states.notes.append(f"{missing.num_rows} entries of new sessions come along, in {merged}")
    return pa.concat_tables([_windows(given, 0), missing])


def _windows(rows: pa.Table, part: int) -> pa.Table:
    """The keys of entries of merged windows, with the merged window (0) or the one that has the contents (1)."""
    window = pc.struct_field(one_array(rows, VALUE), [part])
    return pa.table({KEY: one_array(rows, KEY), NAMESPACE: window})


def _found(windows: pa.Table, rows: pa.Table) -> Ints:
    if not windows.num_rows or not rows.num_rows:
        return np.full(rows.num_rows, -1)
    return search_of(windows, [KEY, NAMESPACE]).found(columns_of(rows, [KEY, NAMESPACE]))


# Timers and triggers


def _close(states: OperatorStates, contents: str, windows: pa.Table) -> None:
    names = [KEY, NAMESPACE]
    keys = search_of(windows, names)
    for state, at in states.states.items():
        if state == contents or not _is_of_windows(at):
            continue
        rows = states.stored(state, names, keys)
        if not rows.num_rows:
            continue
        gone = states.let_go(state, rows)
        if gone:
            what = "timers" if is_timers(at) else "rows"
            states.notes.append(f"{gone} {what} of windows whose contents are removed go along, in {state}")


def _is_of_windows(at: KeyedAt) -> bool:
    form: KeyedForm = at.form
    if form.namespace != Basic("time_window"):
        return False
    return form.name.endswith(_SERVICE) if is_timers(at) else True


def _open(states: OperatorStates, windows: pa.Table) -> None:
    """Let the timers come that other windows of the operator have, for those to which the edit gives none."""
    names = [KEY, NAMESPACE]
    timers = [state for state, at in states.states.items() if is_timers(at) and _is_of_windows(at)]
    windows = windows.filter(one_array(windows, NAMESPACE).is_valid())  # one of null is refused where it is written
    for state in timers:
        windows = windows.filter(pa.array(_found(states.added(state), windows) < 0))
    if not windows.num_rows:
        return
    moments = _moments(states, timers)
    if not moments:
        states.notes.append(
            f"{windows.num_rows} new windows have no timers, for no other windows tell which ones they have: the job "
            f"neither ends nor removes them, unless records come for them; insert their timers in the same edit "
            f"({', '.join(timers) or _SERVICE})"
        )
        return
    end = _ends(windows)
    for state, distance in moments:
        millis = pa.array(end + distance, pa.int64())
        rows = {
            **{name: one_array(windows, name) for name in names},
            TIMESTAMP_MS: millis,
            TIMESTAMP: pa.array((end + distance) * 1000, pa.int64()).view(MICROS),
        }
        schema = states.added(state).schema
        states.let_come(state, pa.Table.from_arrays([rows[each.name] for each in schema], schema=schema))
        moved = f"{distance:+} ms from" if distance else "at"
        states.notes.append(
            f"{windows.num_rows} timers of new windows come along, in {state}, {moved} the end of each, as other "
            "windows of the job have them"
        )


def _ends(windows: pa.Table) -> Ints:
    """The ends of windows in epoch milliseconds."""
    micros = pc.struct_field(one_array(windows, NAMESPACE), ["end"]).view(pa.int64())
    found: Ints = micros.to_numpy(zero_copy_only=False).astype(np.int64) // 1000
    return found


def _moments(states: OperatorStates, timers: list[str]) -> list[tuple[str, int]]:
    """The timers that each window has: their states, and how many milliseconds behind its end they are.

    A window that has ended may have fewer. None where windows differ otherwise, or there are none.
    """
    tables, number_of = [], []
    for place, state in enumerate(timers):
        rows = states.stored(state, [KEY], None, [KEY, NAMESPACE, TIMESTAMP_MS])
        tables.append(rows)
        number_of.append(np.full(rows.num_rows, place))
    every = pa.concat_tables(tables) if tables else None
    if every is None or not every.num_rows:
        return []
    distance = one_array(every, TIMESTAMP_MS).to_numpy() - _ends(every)
    pairs, kind = np.unique(np.stack([np.concatenate(number_of), distance]), axis=1, return_inverse=True)
    if pairs.shape[1] > _MOST_MOMENTS:
        return []
    _, window, _ = distinct(columns_of(every, [KEY, NAMESPACE]))
    masks = np.zeros(int(window.max()) + 1, np.int64)
    np.bitwise_or.at(masks, window, 1 << kind.reshape(-1))
    if not (masks == (1 << pairs.shape[1]) - 1).any():
        return []
    return [(timers[int(place)], int(each)) for place, each in pairs.T]
