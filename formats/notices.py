"""Notices: facts about the rows of a read that the user should know, though the read succeeds."""

from __future__ import annotations

import warnings
from collections.abc import Iterable


class StateStoreWarning(UserWarning):
    """A warning about the rows of a read. Its text names the state or the file, and the reason."""


def notify(subject: str, reasons: Iterable[str]) -> None:
    """Warn of each reason why the rows of ``subject`` may surprise; Python shows a text once for each place."""
    for reason in dict.fromkeys(reasons):
        warnings.warn(StateStoreWarning(f"{subject}: {reason}"), stacklevel=3)
