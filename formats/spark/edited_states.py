"""Edits of the states of a checkpoint as edits of stored rows, by the form of each state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.state_errors import not_editable
from statestore.formats.spark.editable_states import check_editable
from statestore.formats.spark.edits.stored_edits import StoredEdit
from statestore.formats.spark.join_edits import join_edits
from statestore.formats.spark.state_at import Shown, view_of
from statestore.formats.spark.state_edits import stored_edits
from statestore.formats.spark.timed_join_edits import timed_join_edits
from statestore.formats.spark.variable_edits import variable_edits


def edits_of_states(
    checkpoint: Checkpoint, states: Mapping[str, Shown], edits: Sequence[StateEdit], options: EditOptions
) -> tuple[list[StoredEdit], list[str]]:
    """(the edits of stored rows, what the user has to know) of edits of states. ``states`` are those of the source.

    Raises as `Source.edit_plan`, and the errors of reads.
    """
    stored: list[StoredEdit] = []
    notes: list[str] = []
    for edit in edits:
        found, said = _of_state(checkpoint, states[edit.state], edit, options)
        stored += found
        notes += said
    return stored, notes


def unordered_states(checkpoint: Checkpoint, states: Mapping[str, Shown], edits: Sequence[StateEdit]) -> frozenset[str]:
    """The edited states whose rows of a key have no order: sides of joins.

    A row of a join that is changed keeps its number, whatever rows of its key come before it in the edit.
    """
    return frozenset(each.state for each in edits if view_of(checkpoint, states[each.state]).shape == "join-side")


def _of_state(
    checkpoint: Checkpoint, state: Shown, edit: StateEdit, options: EditOptions
) -> tuple[Sequence[StoredEdit], Sequence[str]]:
    view = view_of(checkpoint, state)
    if state.snapshot is not None:
        raise not_editable(
            f"state {edit.state} of {checkpoint.root.path} cannot be edited: it is built on a snapshot that an option "
            "names; leave out snapshotStartBatchId",
        )
    check_editable(checkpoint, edit.state, view)
    if view.shape == "join-side":
        return (timed_join_edits if view.listed else join_edits)(checkpoint, view, edit)
    if checkpoint.operator(view.operator_id).variables:
        return variable_edits(checkpoint, view, edit, options)
    return stored_edits(checkpoint, view, edit, options)
