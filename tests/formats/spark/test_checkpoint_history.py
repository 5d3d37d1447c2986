"""History and changes of checkpoints against a plain model of the same batches, each read as it stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest
from support.checkpoints.checkpoint_models import changes_of, history_of, states_of
from support.checkpoints.spark_state_fixtures import QUICK, index, multiset, opened
from support.parameters import mostly_slow

from statestore.formats.spark.checkpoint.state_views import StateView, state_views
from statestore.formats.spark.history import PartitionBatches, read_history, read_row_changes, tells_rows_apart
from statestore.formats.spark.readable_batches import kept_batches, read_batches

KEY_CELLS = {"rows": 1, "map": 2, "timers": 2}
TYPES = pa.array(["insert", "update_preimage", "update_postimage", "delete"])
SOME = 3


def shown(name: str) -> Iterator[StateView]:
    """The state views that users see, and for joins the state views that Spark keeps."""
    checkpoint = opened(name)
    for operator in checkpoint.operators:
        yield from (
            state_view
            for state_view in state_views(checkpoint, operator)
            if state_view.user or "KeyWith" in state_view.name
        )


def counted(batches: list[pa.RecordBatch], last: tuple[str, str]) -> Counter[tuple[object, ...]]:
    """The rows with these columns, which are the first two, at the end."""
    found: Counter[tuple[object, ...]] = Counter()
    for batch in batches:
        found += multiset(pa.Table.from_batches([batch]).select([*batch.schema.names[2:], *last]))
    return found


@pytest.mark.parametrize("name", mostly_slow(sorted(index()), set(QUICK) - {"spark4.3.0-twsttl__rkav"}))
def test_every_batch_of_every_checkpoint(name: str) -> None:
    checkpoint = opened(name)
    for state_view in shown(name):
        states = states_of(checkpoint, state_view)
        kept = read_batches(checkpoint, kept_batches(checkpoint, state_view.store))
        assert [batch.batch_id for batch in kept] == list(states)
        whole = [PartitionBatches(checkpoint, state_view, number, kept) for number in state_view.store.partitions]
        found = [batch for part in whole for batch in read_history(part)]
        assert counted(found, ("from_batch", "to_batch")) == history_of(states)
        for first in (0, SOME):
            before = kept[first - 1] if first else None
            parts = [
                PartitionBatches(checkpoint, state_view, number, kept[first:]) for number in state_view.store.partitions
            ]
            found = [named(batch) for part in parts for batch in read_row_changes(part, before)]
            key_cells = KEY_CELLS[state_view.shape] if tells_rows_apart(state_view) else None
            assert counted(found, ("batch_id", "kind")) == changes_of(states, first, key_cells)


def named(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(1, "kind", TYPES.take(batch.column("kind")))
