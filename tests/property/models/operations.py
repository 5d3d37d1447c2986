"""Random operations for a model and a real store alike: hypothesis strategies of lists of (verb, arguments).

Times are drawn around what decides: the borders of segments, and the edge of retention as seen from the stream time
that the puts so far have made. A time, or the place of a row, that depends on the operations before it is drawn as a
token, and resolved when the whole list is known: so hypothesis can leave out operations and the rest keeps its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from hypothesis import strategies as st

from models.segments import LATEST_TIME, SHORTEST_INTERVAL

Operation = tuple[str, tuple[Any, ...]]
Operations = st.SearchStrategy[list[Operation]]

# Keys that are byte prefixes of each other, empty, or without a successor.
BINARY_KEYS = st.sampled_from([b"", b"\x00", b"\x00\x00", b"a", b"a\x00", b"ab", b"b", b"\xff", b"\xff\xff"])
TEXT_KEYS = st.sampled_from(["", "\x00", "a", "a\x00", "aa", "ab", "b", "é", "😀"])
INTEGER_KEYS = st.sampled_from([-(2**31), -2, -1, 0, 1, 255, 256, 2**31 - 1])
VALUES = st.sampled_from(["", "v", "w", "x"])

RETENTION = 120_000
INTERVAL = 60_000

WRITES = ("put", "put_all", "remove", "restore", "wipe_and_restore", "flush")


def apply(target: Any, operation: Operation) -> Any:
    """Do the operation and return the answer as plain values: rows as a list of tuples. Properties are verbs without
    arguments.

    Verbs that only write give None, whatever they return; ``delete`` and ``put_if_absent`` give the old value.
    """
    verb, arguments = operation
    member = getattr(target, verb)
    result = member(*arguments) if callable(member) else member
    if verb in WRITES:
        return None
    if isinstance(result, Iterable) and not isinstance(result, str | bytes):
        return [tuple(row) if isinstance(row, tuple) else row for row in result]
    return result


class Moment(NamedTuple):
    """A time: ``offset`` itself, or counted from stream time."""

    offset: int
    from_stream_time: bool = False


class Span(NamedTuple):
    """Two times in order, or ``inverted``."""

    one: Moment
    other: Moment
    inverted: bool


class Choice(NamedTuple):
    """Key and times of a row. With ``earlier``: of a row put before, counted from the last, or only the key of that."""

    key: Any
    moment: Moment
    length: int
    earlier: int | None
    key_only: bool


class _Resolver:
    """Turns tokens into arguments, and remembers stream time and what was put."""

    def __init__(self) -> None:
        self.stream_time = -1
        self.puts: list[tuple[Any, int, int]] = []  # key, start, end

    def time(self, moment: Moment) -> int:
        return moment.offset + (max(0, self.stream_time) if moment.from_stream_time else 0)

    def resolve(self, choice: Choice) -> tuple[Any, int, int]:
        key = choice.key
        if choice.earlier is not None and self.puts:
            key, start, end = self.puts[-1 - choice.earlier % len(self.puts)]
            if not choice.key_only:
                return key, start, end
        end = max(0, self.time(choice.moment))
        return key, max(0, end - choice.length), end

    def span(self, span: Span) -> tuple[int, int]:
        first, last = sorted((self.time(span.one), self.time(span.other)))
        return (last, first) if span.inverted else (first, last)

    def written(self, choice: tuple[Any, int, int]) -> None:
        self.puts.append(choice)
        self.stream_time = max(self.stream_time, choice[2])


Arguments = Callable[[_Resolver, tuple[Any, ...]], tuple[Any, ...]]
Drawn = tuple[st.SearchStrategy[Any], Arguments]


def _sequences(
    verbs: dict[str, Drawn],
    puts: tuple[str, ...],
    without: Collection[str],
    max_size: int,
) -> Operations:
    """Lists in which about half of the operations write."""
    reads = [verb for verb in verbs if verb not in without and verb not in puts]
    writes = [verb for verb in puts if verb not in without]
    weight = max(1, len(reads) // max(1, len(writes)))
    # Not one_of: it takes alternatives that are the same one for one.
    one = st.sampled_from(writes * weight + reads).flatmap(lambda verb: st.tuples(st.just(verb), verbs[verb][0]))

    def resolved(tokens: list[tuple[str, Any]]) -> list[Operation]:
        resolver = _Resolver()
        return [(verb.partition(" ")[0], verbs[verb][1](resolver, drawn)) for verb, drawn in tokens]

    # In bursts, for a plain list has six operations on the average, whatever its greatest size.
    bursts = st.lists(st.lists(one, min_size=1, max_size=8), min_size=1, max_size=max(1, max_size // 8))
    return bursts.map(lambda lists: resolved([operation for burst in lists for operation in burst]))


def _as_drawn(resolver: _Resolver, drawn: tuple[Any, ...]) -> tuple[Any, ...]:
    return drawn


def key_value_operations(
    keys: st.SearchStrategy[Any] = BINARY_KEYS,
    values: st.SearchStrategy[Any] = VALUES,
    *,
    prefixes: st.SearchStrategy[Any] | None = None,
    without: Collection[str] = (),
    max_size: int = 80,
) -> Operations:
    """Every verb of a key-value store. ``prefixes`` are the arguments of ``prefix_scan``: keys, unless given."""
    value, end, nothing = _nullable(values), st.none() | keys, st.just(())
    drawn: dict[str, st.SearchStrategy[Any]] = {
        "put": st.tuples(keys, value),
        "put_if_absent": st.tuples(keys, value),
        "put_all": st.tuples(st.lists(st.tuples(keys, value), max_size=4)),
        "delete": st.tuples(keys),
        "get": st.tuples(keys),
        "range": st.tuples(end, end),
        "reverse_range": st.tuples(end, end),
        "all": nothing,
        "reverse_all": nothing,
        "prefix_scan": st.tuples(keys if prefixes is None else prefixes),
        "approximate_num_entries": nothing,
    }
    verbs: dict[str, Drawn] = {verb: (strategy, _as_drawn) for verb, strategy in drawn.items()}
    return _sequences(verbs, ("put", "put", "put_if_absent", "put_all", "delete"), without, max_size)


def _moments(retention: int, interval: int) -> tuple[st.SearchStrategy[Moment], st.SearchStrategy[Moment]]:
    """Times of writes (some late, some ahead) and times to ask for (also negative and the last one there is)."""
    borders = [Moment(max(0, n * interval + d)) for n in range(4) for d in (-1, 0, 1)]
    near = [Moment(time, True) for time in (0, -1, -2, -10, -100, 1 - interval, -interval)]
    edges = (interval, retention - interval, retention, retention + interval, 2 * retention)
    late = [Moment(d - edge, True) for edge in edges for d in (-1, 0, 1, 2)]
    ahead = [
        Moment(time, True) for time in (1, 2, 10, interval - 1, interval, retention, retention + 1, 10 * retention)
    ]
    far = [Moment(time) for time in (-100, -1, 0, LATEST_TIME)]
    return st.sampled_from(near * 4 + borders + late * 2 + ahead * 3), st.sampled_from(
        near * 4 + borders + late + far * 4
    )


def _spans(moments: st.SearchStrategy[Moment]) -> st.SearchStrategy[Span]:
    everything = st.just(Span(Moment(0), Moment(LATEST_TIME), False))
    return everything | st.builds(Span, moments, moments, st.sampled_from([False] * 7 + [True]))


def _choices(
    keys: st.SearchStrategy[Any], moments: st.SearchStrategy[Moment], lengths: st.SearchStrategy[int], new: int
) -> st.SearchStrategy[Choice]:
    """New places to earlier ones are as ``new`` to 6."""
    return st.builds(Choice, keys, moments, lengths, st.sampled_from([None] * new + [0, 0, 1, 2, 3, 5]), st.booleans())


def _nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The values, with None as one of five."""
    return st.integers(0, 4).flatmap(lambda number: values if number else st.none())


def window_operations(
    keys: st.SearchStrategy[Any] = BINARY_KEYS,
    values: st.SearchStrategy[Any] = VALUES,
    *,
    retention: int = RETENTION,
    interval: int = INTERVAL,
    without: Collection[str] = (),
    max_size: int = 80,
) -> Operations:
    """Every verb of a window store. Overwrites and deletes what is there, and puts what is too late."""
    moments, asked = _moments(retention, interval)
    choice, there = (_choices(keys, moments, st.just(0), new) for new in (6, 2))
    span, end = _spans(asked), st.none() | keys

    def put(resolver: _Resolver, drawn: tuple[Any, ...]) -> tuple[Any, ...]:
        key, start, _ = where = resolver.resolve(drawn[0])
        resolver.written(where)
        return key, drawn[1], start

    def point(resolver: _Resolver, drawn: tuple[Any, ...]) -> tuple[Any, ...]:
        return resolver.resolve(drawn[0])[:2]

    verbs: dict[str, Drawn] = {
        "put": (st.tuples(choice, _nullable(values)), put),
        "fetch point": (st.tuples(there), point),
        "all": (st.just(()), _as_drawn),
        "backward_all": (st.just(()), _as_drawn),
        **_properties(),
    }
    for verb, drawn in {"fetch": (there,), "fetch_range": (end, end), "fetch_all": ()}.items():
        verbs[verb] = verbs[f"backward_{verb}"] = (st.tuples(*drawn, span), _spanned)
    return _sequences(verbs, ("put",), without, max_size)


def session_operations(
    keys: st.SearchStrategy[Any] = BINARY_KEYS,
    values: st.SearchStrategy[Any] = VALUES,
    *,
    retention: int = RETENTION,
    interval: int = INTERVAL,
    without: Collection[str] = (),
    max_size: int = 80,
) -> Operations:
    """Every verb of a session store. Overwrites and removes what is there, and puts what is too late."""
    moments, asked = _moments(retention, interval)
    lengths = st.sampled_from([0, 0, 1, interval - 1, interval, 2 * retention])
    choice, there = (_choices(keys, moments, lengths, new) for new in (6, 2))
    span, end = _spans(asked), st.none() | keys

    def put(resolver: _Resolver, drawn: tuple[Any, ...]) -> tuple[Any, ...]:
        where = resolver.resolve(drawn[0])
        resolver.written(where)
        return (*where, *drawn[1:])

    def point(resolver: _Resolver, drawn: tuple[Any, ...]) -> tuple[Any, ...]:
        return resolver.resolve(drawn[0])

    verbs: dict[str, Drawn] = {
        "put": (st.tuples(choice, _nullable(values)), put),
        "remove": (st.tuples(choice), put),
        "fetch_session": (st.tuples(there), point),
        **_properties(),
    }
    for verb, keyed in {"find_sessions": (there,), "find_sessions_range": (end, end)}.items():
        verbs[verb] = verbs[f"backward_{verb}"] = (st.tuples(*keyed, span), _spanned)
    for way in ("", "backward_"):
        verbs[f"{way}fetch"] = (st.tuples(there), _keyed)
        verbs[f"{way}fetch_range"] = (st.tuples(end, end), _as_drawn)
    return _sequences(verbs, ("put", "put", "put", "remove"), without, max_size)


def join_window_operations(
    keys: st.SearchStrategy[Any] = BINARY_KEYS,
    values: st.SearchStrategy[Any] = VALUES,
    *,
    window_before: int = 1_000,
    window_after: int = 3,
    retention: int = RETENTION,
    num_segments: int = 3,
    without: Collection[str] = (),
    max_size: int = 80,
) -> Operations:
    """Every verb of the join window store of 2016, whose values are never None."""
    interval = max(max(retention, 2 * (window_before + window_after + 1)) // (num_segments - 1), SHORTEST_INTERVAL)
    moments, _ = _moments(num_segments * interval, interval)
    edges = [d + e for d in (-window_after, 0, window_before) for e in (-1, 0, 1)]
    choice, there = (_choices(keys, moments, st.just(0), new) for new in (6, 2))

    def put(resolver: _Resolver, drawn: tuple[Any, ...]) -> tuple[Any, ...]:
        key, timestamp, _ = where = resolver.resolve(drawn[0])
        resolver.written(where)
        return key, drawn[1], timestamp

    def fetch(resolver: _Resolver, drawn: tuple[Any, ...]) -> tuple[Any, ...]:
        key, timestamp, _ = resolver.resolve(drawn[0])
        return key, max(0, timestamp + drawn[1])

    verbs: dict[str, Drawn] = {
        "put": (st.tuples(choice, values), put),
        "fetch": (st.tuples(there, st.sampled_from(edges)), fetch),
    }
    return _sequences(verbs, ("put",), without, max_size)


def _keyed(resolver: _Resolver, drawn: tuple[Any, ...]) -> tuple[Any, ...]:
    return (resolver.resolve(drawn[0])[0],)


def _spanned(resolver: _Resolver, drawn: tuple[Any, ...]) -> tuple[Any, ...]:
    """A place stands for its key."""
    keys = [resolver.resolve(key)[0] if isinstance(key, Choice) else key for key in drawn[:-1]]
    return (*keys, *resolver.span(drawn[-1]))


def _properties() -> dict[str, Drawn]:
    return {name: (st.just(()), _as_drawn) for name in ("dropped_records", "observed_stream_time")}
