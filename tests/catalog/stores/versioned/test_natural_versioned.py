"""Random histories against the plain-Python model: every answer at every state time and every version."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.stores.versioned_checks import HORIZON, check_everything, check_points
from support.stores.versioned_pair import Pair

DEEP = "STATESTORE_EXAMPLES" in os.environ
EXAMPLES = int(os.environ.get("STATESTORE_EXAMPLES", "5"))
STEP = 1 if DEEP else 3  # of the state times that every answer is asked for

keys = st.sampled_from(["a", "b", "c"])
values = st.one_of(st.none(), st.integers(0, 9))
times = st.integers(0, HORIZON - 1)
puts = st.tuples(keys, values, times)
steps = st.one_of(
    st.tuples(st.just("put"), puts),
    st.tuples(st.just("put"), puts),
    st.tuples(st.just("put_all"), st.lists(puts, max_size=6)),
    st.tuples(st.just("write"), st.lists(puts, min_size=1, max_size=6)),
    st.tuples(st.just("commit"), st.none()),
    st.tuples(st.just("commit"), st.none()),
    st.tuples(st.just("compact"), st.booleans()),
    st.tuples(st.just("reopen"), st.none()),
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, min_size=1, max_size=40), st.sampled_from([None, None, 5, 0]), st.booleans())
def test_random_history(program: list[tuple[str, Any]], retention: int | None, auto_compact: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(folder, retention, auto_compact)
        for name, argument in program:
            pair.step(name, argument)
        check_points(pair.store, pair.model)
        pair.step("commit", None)
        check_everything(pair.store, pair.model, STEP)
        pair.step("compact", True)
        check_everything(pair.store, pair.model, STEP)
        pair.store.close()
