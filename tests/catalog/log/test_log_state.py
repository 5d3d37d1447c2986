"""Log states: pure values, equal to the plain model of the log, safe to grow from several threads."""

from __future__ import annotations

import copy
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from support.stores.log_entries import NO_TIME, closure, entry, folded, plain, random_log, segment

from statestore.catalog.log.entries import CommitEntry
from statestore.catalog.log.log_state import EMPTY, KEPT_CHANGELOGS, LogState, advance, check_layout
from statestore.formats.errors import CorruptError


def replayed(log: list[CommitEntry], start: LogState = EMPTY) -> LogState:
    return [start, *accumulate(log, advance, initial=start)][-1]


@pytest.mark.parametrize("seed", range(10))
def test_replay_equals_the_model_at_every_version(seed: int) -> None:
    log = random_log(100, seed)
    log_state = EMPTY
    for version, commit in enumerate(log):
        log_state = advance(log_state, commit)
        check_layout(log_state)
        assert plain(log_state) == folded(log[: version + 1])


def test_older_log_states_do_not_change() -> None:
    """Older log states share the memory of newer ones, also across the growth of their columns."""
    log = random_log(300, seed=1)
    log_states = list(accumulate(log, advance, initial=EMPTY))[1:]
    assert all(plain(log_states[version]) == folded(log[: version + 1]) for version in (0, 1, 63, 64, 65, 128, 200))


def test_branches_do_not_see_each_other() -> None:
    """A commit that lost its race was perhaps folded in already."""
    log = random_log(80, seed=2)
    base = replayed(log[:70])
    mine, theirs = entry(70, writer="mine", transaction=("me", 1)), entry(70, writer="theirs")
    first, second = advance(base, mine), advance(base, theirs)
    assert plain(first) == folded([*log[:70], mine])
    assert plain(second) == folded([*log[:70], theirs])
    assert (first.versions.find_transaction("me", 1), second.versions.find_transaction("me", 1)) == (70, None)


def test_threads_may_advance_the_same_log_state() -> None:
    """Handles and doors of a process share log states, and each follows the log by itself."""
    log = random_log(40, seed=3)
    expected = folded(log)
    base = replayed(log[:3])
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: replayed(log[3:], base), range(200)))
    finally:
        sys.setswitchinterval(interval)
    assert all(plain(log_state) == expected for log_state in found)


def test_a_log_state_can_be_copied() -> None:
    log_state = replayed(random_log(20, seed=4))
    assert plain(copy.deepcopy(log_state)) == plain(log_state)


def test_a_gap_is_refused() -> None:
    with pytest.raises(CorruptError, match="version 2 follows version 0"):
        advance(advance(EMPTY, entry(0)), entry(2))


def test_removing_an_unknown_segment_is_refused() -> None:
    with pytest.raises(CorruptError, match=f"removes segment {segment(9).name}"):
        advance(EMPTY, entry(0, removed=(segment(9).name,)))


def test_a_segment_takes_its_closures_along() -> None:
    log = [entry(0), entry(1, closures=(closure(1, segment(0).name, 1),)), entry(2, removed=(segment(0).name,))]
    assert replayed(log[:2]).closures == {segment(0).name: (closure(1, segment(0).name, 1),)}
    assert replayed(log).closures == {}


def test_closures_keep_the_order_of_their_commits() -> None:
    pieces = [closure(version, segment(0).name, version) for version in range(1, 5)]
    log = [entry(0), *(entry(piece.version, closures=(piece,)) for piece in pieces)]
    assert replayed(log).closures[segment(0).name] == tuple(pieces)


@pytest.mark.parametrize(
    ("commit", "found"),
    [(entry(1, closures=(closure(1, segment(7).name, 1),)), "closes rows"), (entry(1, added=(segment(0),)), "twice")],
)
def test_a_layout_that_does_not_fit_is_refused(commit: CommitEntry, found: str) -> None:
    with pytest.raises(CorruptError, match=f"LOG_CORRUPT.*{found}"):
        check_layout(replayed([entry(0), commit]))


def test_stream_time_starts_before_any_record() -> None:
    """A commit without records leaves it alone."""
    log = [entry(version, stream_time=time) for version, time in enumerate([None, 5_000, None, 7_000])]
    log_state = replayed(log)
    assert (EMPTY.stream_time, EMPTY.stream_time_us) == (None, NO_TIME)
    assert (replayed(log[:1]).stream_time, log_state.stream_time) == (None, 7_000)
    assert log_state.versions.stream_time.tolist() == [NO_TIME, 5_000, 5_000, 7_000]
    assert log_state.versions.stream_time_before(np.array([3, 0, 1])).tolist() == [5_000, NO_TIME, NO_TIME]
    assert log_state.versions.stream_time_at(2) == 5_000


def test_transactions_are_found_by_application_and_batch() -> None:
    log = [entry(0), entry(1, transaction=("a", 1)), entry(2, transaction=("b", 1)), entry(3, transaction=("a", 2))]
    newest, older = replayed(log).versions, replayed(log[:2]).versions
    assert [newest.find_transaction(*name) for name in (("a", 1), ("b", 1), ("a", 2), ("b", 2))] == [1, 2, 3, None]
    assert [older.find_transaction(*name) for name in (("a", 1), ("b", 1))] == [1, None]


def test_a_horizon_holds_until_the_next() -> None:
    log = random_log(60, seed=5)
    assert plain(replayed(log))["horizon"] == folded(log)["horizon"] is not None
    assert replayed([replace(commit, horizon=None) for commit in log]).horizon is None


def test_the_newest_changelogs_are_remembered() -> None:
    """A name read twice keeps its place and gets the later end; the list does not grow for ever."""
    first = advance(EMPTY, entry(0, changelogs=(("a", 1), ("b", 2))))
    second = advance(first, entry(1, changelogs=(("a", 5),)))
    assert (dict(first.changelogs), list(second.changelogs.items())) == ({"a": 1, "b": 2}, [("a", 5), ("b", 2)])
    many = tuple((f"c{number}", number) for number in range(KEPT_CHANGELOGS - 1))
    assert list(advance(second, entry(2, changelogs=many)).changelogs) == ["b", *(name for name, _ in many)]
