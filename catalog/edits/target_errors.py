"""Errors for targets of edits, wherever these lie, and for sources that do not stay as they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from statestore.catalog.edits.receipt import RECEIPT_FILE
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, InvalidInputError, StateStoreError, StorageError


def wrong_plan(target: str, what: str) -> StateStoreError:
    """The error for a plan of an engine that does not do what an edit needs."""
    return StateStoreError(
        ErrorCode.EDIT_DIFFERS, f"{target} was not made: {what}. Nothing is there; keep the source, and report the case"
    )


@contextlib.contextmanager
def of_target(path: str) -> Iterator[None]:
    """Raise EDIT_DIFFERS for a target that cannot be read again, but not for a full disk or a store that is silent."""
    try:
        yield
    except StorageError:
        raise
    except (StateStoreError, OSError, ValueError, KeyError) as error:
        if isinstance(error, StateStoreError) and error.code == ErrorCode.EDIT_DIFFERS:
            raise
        raise wrong_plan(path, f"it cannot be read again ({error})") from error


def check_path(target: str, path: str) -> None:
    """Raise StateStoreError EDIT_DIFFERS for a file of a plan that does not lie below its target, or has the name of
    the receipt."""
    if "\0" in path or not {"", ".", ".."}.isdisjoint(path.split("/")):
        raise wrong_plan(target, f"{path!r} is no path below it")
    if path == RECEIPT_FILE:
        raise wrong_plan(target, f"{path} is the name of the receipt")


def target_exists(path: str) -> InvalidInputError:
    """The error for a place that is taken."""
    return InvalidInputError(
        ErrorCode.TARGET_EXISTS, f"{path} exists; an edit makes a new folder and replaces nothing: name another target"
    )


def lies_in_source(target: str, folder: str) -> InvalidInputError:
    """The error for a target within a folder of the source, or around it."""
    return InvalidInputError(
        ErrorCode.TARGET_EXISTS,
        f"the target {target} lies in the folder {folder} of the source, or around it; an edit changes nothing "
        "there: name a target elsewhere",
    )


def source_changed(what: Sequence[str]) -> ConflictError:
    """The error for a source that did not stay as it was while it was edited."""
    return ConflictError(
        ErrorCode.SOURCE_CHANGED,
        f"the source changed while it was edited: {'; '.join(what)}. No target was made; stop the job that "
        "writes there and see that nothing removes its files, then repeat the edit",
    )
