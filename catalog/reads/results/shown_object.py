"""Objects that show themselves: a few lines in a terminal, a small table in a notebook."""

from __future__ import annotations

from collections.abc import Sequence

from statestore.catalog.reads.results.shown_table import html_facts, html_page, printable

Facts = Sequence[tuple[str, str]]


class ShowsItself:
    """An object with a title and a few facts. To show it never raises, and never reads rows."""

    def _about(self) -> tuple[str, Facts]:
        """Return the title, and what is known, by name. May raise."""
        raise NotImplementedError

    def __repr__(self) -> str:
        title, facts = _shown_of(self)
        return "\n".join([printable(title), *(printable(f"  {name}: {what}") for name, what in facts)])

    def _repr_html_(self) -> str:
        title, facts = _shown_of(self)
        return html_page(title, "", html_facts(facts))


def _shown_of(item: ShowsItself) -> tuple[str, Facts]:
    try:
        return item._about()
    except Exception as error:  # of a store that is gone or damaged, or of an object that was never whole
        return f"{type(item).__name__} that cannot be shown", [("because", str(error) or type(error).__name__)]
