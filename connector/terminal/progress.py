"""Progress bars, on stderr, and only on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Advance = Callable[[str, int, int | None], None]
"""(the step, the amount done, the total or None if it is unknown)."""


@contextlib.contextmanager
def progress(unit_bytes: bool = False) -> Iterator[Advance]:
    """Show a bar that disappears when the work is done; show nothing if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda text, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    count = DownloadColumn(binary_units=True) if unit_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), count, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def advance(text: str, done: int, total: int | None) -> None:
            bar.update(task, description=text, completed=done, total=total)

        yield advance
