"""Progress bars: on stderr, and only where somebody watches."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Advance = Callable[[str, int, int | None], None]
"""(what is at work, how much is done, of how much; None: nobody knows)."""


@contextlib.contextmanager
def progress(unit_bytes: bool = False) -> Iterator[Advance]:
    """A bar that goes away when the work is done; nothing at all where stderr is no terminal."""
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
