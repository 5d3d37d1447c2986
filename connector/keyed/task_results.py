"""The result of a task as JSON for the driver: the part it wrote and the rows it emitted, or its error."""

from __future__ import annotations

import json
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotPart, check_stored, part_from_json
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.segments.segment_meta import FileRef, file_ref_from_json
from statestore.formats.segments.segment_meta import to_json as file_to_json

_KINDS: dict[str, type[StateStoreError]] = {kind.__name__: kind for kind in StateStoreError.__subclasses__()}


@dataclass(frozen=True)
class Done:
    """The part of a task, and the file of its emitted rows if there are any."""

    task: int
    part: SnapshotPart
    emitted: FileRef | None


@dataclass(frozen=True)
class Failed:
    """An error that would recur if Spark repeated the task."""

    task: int
    error: StateStoreError


Answer = Done | Failed


def to_json(answer: Answer) -> str:
    if isinstance(answer, Done):
        emitted = None if answer.emitted is None else file_to_json(answer.emitted)
        return json.dumps({"task": answer.task, "part": answer.part.to_json(), "emitted": emitted})
    error = answer.error
    failed = [type(error).__name__, error.code, error.message, *getattr(error, "__notes__", ())]
    return json.dumps({"task": answer.task, "failed": failed})


def from_json(text: str) -> Answer:
    found = json.loads(text)
    if "failed" in found:
        kind, code, message, *notes = found["failed"]
        error = _KINDS.get(kind, StateStoreError)(ErrorCode.__members__.get(code, code), message)
        for note in notes:
            error.add_note(note)
        return Failed(found["task"], error)
    emitted = None if found["emitted"] is None else file_ref_from_json(found["emitted"])
    if emitted is not None:
        check_stored(emitted)
    return Done(found["task"], part_from_json(found["part"]), emitted)


def function_failed(where: str, error: BaseException) -> InvalidInputError:
    """The error for any exception of a user's function, with the function's own stack as a note."""
    message = str(error) if isinstance(error, StateStoreError) else f"{type(error).__name__}: {error}"
    found = InvalidInputError(
        ErrorCode.FUNCTION_FAILED,
        f"{where}: {message}; nothing of the batch was committed. Correct the function, then run again",
    )
    found.add_note("".join(traceback.format_exception(error)))
    return found


def failure_of(answers: Sequence[Answer]) -> Failed | None:
    """The failure of the first task that failed."""
    failed = [answer for answer in answers if isinstance(answer, Failed)]
    return min(failed, key=lambda answer: answer.task, default=None)
