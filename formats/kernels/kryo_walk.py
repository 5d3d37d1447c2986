"""The walk over an object of Kryo: where it ends, and what it contains.

Written for numba, which compiles it in ``kryo_kernels``, and run as it is where numba is not loaded. An object is a
class and a body; a body may hold more objects. What is still to be read stands on a stack, so nothing is recursive.

    object      varint class | marker | body         0: null; 1: a class by name; n + 2: the registered class n
    by name     varint number | name                 the name only where the number is new in this value
    marker      varint                               1: new, n + 2: the object n of this value again; wrappers have none

A tape has an entry for each object, containers before what they contain.
"""

from __future__ import annotations

from typing import Any

from statestore.formats.kernels.flink_steps import DONE, FULL, OPAQUE, SHORT, WRONG
from statestore.formats.kernels.kryo_forms import (
    ARRAY,
    AS_LIST,
    BEHIND,
    BIG_DECIMAL,
    BIG_INT,
    BIG_INTEGER,
    BITS,
    BYTES,
    CONSTANT,
    DELTAS,
    DOUBLE,
    DOUBLE_NUMBER,
    DURATION,
    EMPTY_LIST,
    EMPTY_MAP,
    ENUM_SET,
    ENUMERATION,
    FIELD,
    FIRST_OF_FIELDS,
    FLAG,
    FLAGGED_TEXT,
    INSTANT,
    INT,
    INT_NUMBER,
    LAST_SHOWN,
    LIST,
    LOCAL_DATE,
    LOCAL_DATE_TIME,
    LOCAL_TIME,
    LONG,
    LONG_NUMBER,
    MAP,
    MAYBE,
    MILLIS,
    MILLIS_NANOS,
    MORE,
    MOST_NESTED,
    MOST_SHARED,
    MOST_UNCOUNTED,
    NO_HINT,
    NOTHING,
    NOTHING_FORM,
    NULL,
    NULLABLE,
    NUMBERS,
    OBJECT,
    OBJECTS,
    OF_FORM,
    OF_HINT,
    OFFSET,
    OPAQUE_FORM,
    OPTIONAL,
    ORDERED,
    PAIRS,
    PARENT,
    SHOWN,
    SIDE,
    SIDES,
    SINGLE,
    SINGLE_ENTRY,
    TAG,
    TAKES_HINT,
    TEXT,
    TEXT_NUMBER,
    TUPLE,
    TWO_LONGS,
    UNKNOWN,
    UNSIGNED,
    UNSURE,
    VALUE,
    VALUE_OF,
    VOID,
    WITHOUT_HINT,
    WRAPPED,
)
from statestore.formats.kernels.kryo_leaves import (
    bits,
    constants,
    date_time,
    deltas,
    named_leaf,
    numbers,
    one_number,
    put,
    repeat,
)
from statestore.formats.kernels.kryo_parts import (
    class_form,
    class_object,
    date_or_time,
    flagged,
    instant_or_id,
    moment,
    sized,
    text,
    usual_leaf,
    varint,
)

# What stands on the stack: an action, two numbers, and the entry that the result belongs to (-1: none, -2: dropped).
_ANY = 0  # objects with their classes: their number; the form of the hint that their type is, or 0
_TYPED = 1  # objects of a form: their number; the form times 2, plus 1 if they may be null, and in high bits the hint
_CLOSE = 2  # the container is complete
_COUNTED = 3  # a count, and so many objects: 1; their number for each, 1 or 2, and 4 times the form of the hint
_SAME = 4  # the class of all elements of a list, then so many; 1 if none can be null, plus 2 times the hint's form
_FIELDS = 5  # objects of forms that follow one another: their number; the form of the next one
_OF_FORM = 6  # objects with their classes, all of the kind of one form: their number; the form
_ENTRIES = 7  # entries of a map that are tuples of two, with their classes
_SLOTS = 8  # objects of two kinds in turn, as the keys and items of a map: their number; the form of the hint


def arrays_of(arrays: Any, part: int) -> Any:
    """The arrays of a part: those that are given, of one part. The compiled walk has another function here."""
    return arrays


def walk_object(
    arrays: Any,
    part: int,
    at: int,
    end: int,
    keep: bool,
    is_old: bool,
    first: int,
) -> int:
    """Walk over one object of Kryo from ``at`` to at most ``end``; ``keep``: write it to ``tape`` from entry ``first``.

    `arrays_of` gives the arrays of ``part``. ``is_old``: Kryo 2, else Kryo 5. ``forms`` has for each form its kind,
    whether back references go to it, and a. ``refs`` and ``tape`` may have too little room, and then it returns FULL.
    ``known`` stays the same for all values of one ``data`` and of the same forms. Returns DONE, or FULL, SHORT, WRONG,
    OPAQUE; ``reached`` becomes the position, and the number of entries.
    """
    data, forms, registered, names, name_ends, name_forms, tape, stack, refs, known, reached = arrays_of(arrays, part)
    begin = at
    n, room = first, tape.shape[1]
    objects, depth = 0, 1
    most = first + MOST_UNCOUNTED + MOST_SHARED * (end - begin)
    known[0] = 0
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = _ANY, 1, 0, -1
    while depth > 0:
        top = depth - 1
        action, count, detail, parent = int(stack[top, 0]), int(stack[top, 1]), int(stack[top, 2]), int(stack[top, 3])
        if action == _CLOSE:
            depth -= 1
            if keep and parent >= 0:
                tape[BEHIND, parent] = n
            continue
        if count == 0:
            depth -= 1
            continue
        if action == _COUNTED:
            size, at = varint(data, at, end, 5)
            if at < 0:
                return -at
            hint, per = detail >> 2, detail & 3
            if size * per > end - at:
                return SHORT
            stack[top, 0], stack[top, 1], stack[top, 2] = _ANY, size * per, 0
            if hint > 0 and per == 2:
                stack[top, 0], stack[top, 2] = _SLOTS, hint
            elif hint > 0 and forms[forms[hint, 2], 2] > 0:
                slot = int(forms[hint, 2])
                stack[top, 0], stack[top, 2] = _TYPED, 2 * int(forms[slot, 2]) + int(forms[slot, 1])
            continue
        if action == _SAME:
            form, at = class_form(data, at, end, names, name_ends, name_forms, registered, known)
            if at < 0:
                return -at
            if form < 0:  # all elements are null
                form, nullable = NOTHING_FORM, False
            elif form == OPAQUE_FORM:
                return OPAQUE
            else:
                nullable = False
                if detail & 1 == 0:
                    if at >= end:
                        return SHORT
                    if int(data[at]) > 1:
                        return WRONG
                    nullable = int(data[at]) == 1
                    at += 1
                if not nullable and count > end - at and int(forms[form, 0]) != VOID:
                    return SHORT
            hint = detail >> 1
            stack[top, 0], stack[top, 2] = _TYPED, (hint << OF_HINT) + 2 * form + (1 if nullable else 0)
            continue
        # Most elements are texts in ASCII and numbers, of registered classes: they are written down in a loop of their
        # own. It stops before all that it does not know, which the steps below take, and refuse where it is wrong.
        usual = 0
        if action == _TYPED:
            form = detail >> 1 & OF_FORM
            kind, tracked = int(forms[form, 0]), int(forms[form, 1])
            if kind == TEXT and tracked == 1:
                usual = TEXT_NUMBER
            elif tracked == 0 and detail & 1 == 0:
                usual = LONG_NUMBER if kind == LONG else INT_NUMBER if kind == INT else 0
                usual = DOUBLE_NUMBER if kind == DOUBLE else usual
        if keep and parent != -2 and (action == _ANY or usual > 0):
            lead = 1 if action == _ANY else 0
            number = usual
            before = n
            while count > 0 and n < room and end - at > 2:
                if lead == 1:
                    number = int(data[at])
                tag, value, more, next_at = usual_leaf(data, at + lead, end, number, is_old)
                if next_at < 0 or objects + 2 >= len(refs):
                    break
                if tag == TEXT:
                    refs[objects] = n
                    objects += 1
                n = put(tape, n, tag, value, more, parent)
                at = next_at
                count -= 1
            if n > before:
                stack[top, 1] = count
                continue
        stack[top, 1] = count - 1
        if keep and n >= room:
            return FULL
        if depth + 4 > MOST_NESTED:
            return OPAQUE
        # The class of the next object, or that of its container's objects, and what is known of those inside.
        form, nullable, hint = detail, False, 0
        is_named = action in (_ANY, _OF_FORM, _ENTRIES)
        if action == _ANY:
            hint = detail
        elif action == _TYPED:
            form, nullable, hint = detail >> 1 & OF_FORM, detail & 1 == 1, detail >> OF_HINT
        elif not is_named:
            if action == _FIELDS:
                stack[top, 2] = detail + 1
            else:
                form = int(forms[detail, 2 + (count & 1)])
            if forms[form, 0] == FIELD:
                if forms[form, 1] == UNKNOWN and at < end and data[at] != 0:
                    return OPAQUE
                nullable, hint, form = int(forms[form, 1]) == NULLABLE, int(forms[form, 3]), int(forms[form, 2])
                is_named = form == 0
        if is_named:
            form, at = class_form(data, at, end, names, name_ends, name_forms, registered, known)
            if at < 0:
                return -at
            if action == _OF_FORM and (form <= 0 or forms[form, 0] != forms[detail, 0]):
                return OPAQUE
        if form == OPAQUE_FORM:
            return OPAQUE
        kind, tracked, a = NULL, 0, 0
        if form > 0:
            kind, tracked, a = int(forms[form, 0]), int(forms[form, 1]), int(forms[form, 2])
        if form > 0 and (tracked == 1 or nullable):
            marker, at = varint(data, at, end, 5)
            if at < 0:
                return -at
            if marker == 0:
                kind = NULL
            elif marker > 1:
                if tracked == 0 or marker - 2 >= objects:
                    return WRONG
                if action == _ENTRIES:
                    return OPAQUE
                if keep and parent != -2:
                    source = int(refs[marker - 2])
                    size = 1 if source < -1 else 0
                    if 0 <= source < n and tape[BEHIND, source] > source:
                        size = int(tape[BEHIND, source]) - source
                    if size == 0 or n + size > most:
                        return OPAQUE  # an object that contains itself has no end
                    if n + size > room:
                        return FULL
                    n = repeat(tape, source, n, parent)
                continue
            elif tracked == 1:
                if keep:
                    if objects + 2 >= len(refs):
                        return FULL
                    refs[objects] = n if parent != -2 and action != _ENTRIES else -1
                objects += 1
        tag, value, more, is_leaf = kind, 0, 0, True
        if action == _ENTRIES:
            if kind == TUPLE and a == 2:
                stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = _ANY, 2, 0, parent
                depth += 1
                continue
            if kind != NUMBERS or a & 15 == 0:
                return OPAQUE
        # Leaves
        if kind in (NULL, VOID, NOTHING):
            tag = NULL
        elif kind in (TEXT, FLAGGED_TEXT):
            tag, value, more, at = text(data, at, end)
            if kind == FLAGGED_TEXT and at >= 0:
                _, at = varint(data, at, end, 5)
            if at < 0:
                return -at
        elif kind < VOID or kind in (FLAG, MAYBE, UNSIGNED, OFFSET):
            tag, value, at = one_number(kind, data, at, end, a, is_old)
            if at < 0:
                return -at
        elif kind in (BIG_INTEGER, BIG_DECIMAL, BYTES):
            tag, value, more, at = sized(data, at, end, kind)
            if at < 0:
                return -at
        elif kind in (MILLIS, MILLIS_NANOS, TWO_LONGS):
            tag, value, more, at = instant_or_id(data, at, end, kind, a, is_old)
            if at < 0:
                return -at
        elif kind == CONSTANT:
            value, at = varint(data, at, end, 5)
            if at < 0:
                return -at
            more = a
            if value == 0:
                tag = NULL
            value -= 1
        elif kind == ENUM_SET:
            form, at = class_form(data, at, end, names, name_ends, name_forms, registered, known)
            if at < 0:
                return -at
            if form <= 0 or int(forms[form, 0]) != CONSTANT:
                return OPAQUE
            n, at = constants(data, at, end, int(forms[form, 2]), keep and parent != -2, tape, n, parent)
            if at < 0:
                return -at
            continue
        elif kind in (BITS, DELTAS, NUMBERS):
            is_kept = keep and parent != -2
            if kind == BITS:
                n, at = bits(data, at, end, is_old, is_kept, tape, n, parent)
            elif kind == DELTAS:
                n, at = deltas(data, at, end, is_kept, tape, n, parent)
            else:
                n, at = numbers(data, at, end, a, action != _ENTRIES, is_kept, tape, n, parent)
            if at < 0:
                return -at
            continue
        elif kind in (INSTANT, DURATION):
            value, more, at = moment(data, at, end, kind == DURATION, is_old)
            if at < 0:
                return -at
        elif kind in (VALUE_OF, BIG_INT):
            tag, value, more, objects, at = named_leaf(
                kind, data, at, end, forms, names, name_ends, name_forms, registered, known, refs, objects, keep,
                n if parent != -2 else -1,
            )  # fmt: skip
            if at < 0:
                return -at
        elif kind == ENUMERATION and int(forms[form, 3]) == 1:
            tag, more = CONSTANT, a
        elif kind == LOCAL_DATE_TIME and is_old:
            value, more, objects, at = date_time(data, at, end, keep, keep and parent != -2, tape, n, refs, objects)
            if at < 0:
                return -at
        elif kind in (LOCAL_DATE, LOCAL_TIME, LOCAL_DATE_TIME):
            value, more, at = date_or_time(data, at, end, kind, is_old)
            if at < 0:
                return -at
        else:
            is_leaf = False
        if is_leaf:
            if parent != -2:
                n = put(tape, n, tag, value, more, parent) if keep else n + 1
            continue
        # Containers
        if kind in (OPTIONAL, WRAPPED):
            if kind == WRAPPED:
                objects, at = class_object(
                    data, at, end, names, name_ends, name_forms, registered, known, refs, objects, keep
                )
                if at < 0:
                    return -at
            action = _ANY
            if int(forms[form, 3]) < TAKES_HINT:
                hint = 0
            elif hint > 0:
                action = _SLOTS
            elif int(forms[form, 3]) == UNSURE:
                return OPAQUE
            if hint > 0 and int(forms[form, 3]) == NO_HINT:
                return OPAQUE
            stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = action, 1, hint, parent
            depth += 1
            continue
        if kind in (SHOWN, LAST_SHOWN):
            size, last = int(forms[form, 3]) - 1, 1 if kind == LAST_SHOWN else 0
            stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = _FIELDS, size, a + 1, -2
            if last == 1:
                stack[depth, 1], stack[depth, 2], stack[depth, 3] = 1, a + size, parent
            depth += 1
            stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = _OF_FORM, 1, a, parent
            if last == 1:
                stack[depth, 0], stack[depth, 1], stack[depth, 3] = _FIELDS, size, -2
            depth += 1
            continue
        size, header, shared, least, slot = 0, False, False, 1, 0
        if hint > 0 and kind in (LIST, MAP):
            if int(forms[form, 3]) == WITHOUT_HINT:
                hint = 0
            elif kind == LIST:
                slot = int(forms[hint, 2])
            elif forms[hint, 2] == forms[hint, 3]:  # the type has one kind of objects inside
                return OPAQUE
        if kind == OBJECT or kind >= FIRST_OF_FIELDS:
            size = int(forms[form, 3])
            if kind == OBJECT:
                value = int(forms[a - 1, 2])
                if forms[a - 1, 1] == 1 and hint > 0:
                    a = int(forms[forms[hint, 1], 2])
                    if a == 0 or forms[a - 1, 2] != value:
                        return OPAQUE
                elif forms[a - 1, 3] == 1:
                    return OPAQUE
        elif kind in (EMPTY_LIST, EMPTY_MAP):
            tag = LIST if kind == EMPTY_LIST else MAP
        elif kind in (SINGLE, TUPLE, SINGLE_ENTRY, SIDE):
            tag, size = LIST if kind in (SINGLE, TUPLE) else MAP, a if kind == TUPLE else 1
            if hint > 0 and kind != SINGLE and int(forms[form, 3]) != WITHOUT_HINT:
                return OPAQUE
        elif kind in (PAIRS, ORDERED):
            tag, header = MAP if kind == PAIRS else LIST, kind == ORDERED or a == 1
            size, at = varint(data, at, end, 5)
            if at < 0:
                return -at
        elif kind == AS_LIST:
            tag = LIST
            size, at = varint(data, at, end, 5)
            if at < 0:
                return -at
            _, at = class_form(data, at, end, names, name_ends, name_forms, registered, known)
            if at < 0:
                return -at
        elif kind in (ARRAY, OBJECTS):
            tag = LIST
            size, at = varint(data, at, end, 5)
            if at < 0:
                return -at
            if size == 0:
                tag = NULL
            size -= 1
        elif kind == LIST and not is_old:
            flag = 0
            if slot > 0 and forms[slot, 2] > 0 and forms[form, 3] == 1:
                size, at = varint(data, at, end, 5)
            else:
                flag, size, at = flagged(data, at, end)
            if at < 0:
                return -at
            if size == 0:
                tag = NULL
            size -= 1
            nullable = flag == 1
            header, shared = a == 1, nullable and size > 0 and (slot == 0 or forms[slot, 2] == 0)
            least = 0 if shared else 1  # a list of nulls has no bytes for them
        elif kind == MAP and not is_old:
            size, at = varint(data, at, end, 5)
            if at < 0:
                return -at
            if size == 0:
                tag = NULL
            size -= 1
            header = a == 1
        elif kind in (LIST, MAP):
            header = a == 1
            if not header:
                size, at = varint(data, at, end, 5)
                if at < 0:
                    return -at
        else:
            return OPAQUE
        per = 2 if tag == MAP and kind != SIDE else 1
        if size * per * least > end - at:
            return SHORT
        if least == 0 and size > end - at and size > MOST_UNCOUNTED:
            return WRONG
        inner = parent
        if parent != -2:
            if keep:
                tape[TAG, n], tape[VALUE, n], tape[MORE, n] = tag, value, 0
                tape[PARENT, n], tape[BEHIND, n] = parent, n + 1 if tag == NULL else n
            inner = n
            n += 1
        if tag == NULL:
            continue
        if kind == SIDE and parent != -2:
            if n >= room and keep:
                return FULL
            n = put(tape, n, CONSTANT, a, SIDES, inner) if keep else n + 1
        stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = _CLOSE, 1, 0, inner
        depth += 1
        action, detail = _ANY, 0
        if kind == OBJECT or kind >= FIRST_OF_FIELDS:
            action, detail = _FIELDS, a
        elif kind in (LIST, MAP) and is_old and header:
            action, detail, size = _COUNTED, per + 4 * hint, 1
        elif slot > 0 and forms[slot, 2] > 0:
            if is_old:
                nullable = int(forms[slot, 1]) == NULLABLE
            action, detail = _TYPED, 2 * int(forms[slot, 2]) + (1 if nullable else 0)
        elif shared:
            action, detail = _SAME, (1 if int(forms[form, 3]) == 1 else 0) + 2 * int(forms[slot, 3])
        elif slot > 0:
            detail = int(forms[slot, 3])
        elif kind == MAP and hint > 0:
            action, detail = _SLOTS, hint
        elif kind == ARRAY:
            action, detail = _TYPED, 2 * a
        elif kind == OBJECTS and a > 0:
            action, detail = _TYPED, 2 * a + 1
        elif kind == PAIRS:
            action = _ENTRIES
        if action in (_ANY, _TYPED, _SLOTS):
            size *= per
        stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = action, size, detail, inner
        depth += 1
        if header:
            stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = _ANY, 1, 0, -2
            depth += 1
    reached[0], reached[1] = at, n
    return DONE
