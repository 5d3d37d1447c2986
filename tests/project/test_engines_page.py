"""docs/engines.md lists all members of the classes from which an engine derives its own, and which it must write."""

from __future__ import annotations

import re

import pytest
from support.paths import ROOT

import statestore
from statestore.formats import edits, engine, written

PAGE = (ROOT / "docs" / "engines.md").read_text("utf-8")
MUST = "must be written"


def listed(title: str) -> dict[str, bool]:
    """The members in the tables below headings of this title, with whether they must be written: in a table without
    defaults all, in others where the row says so.
    """
    found = {}
    for text in re.findall(rf"^### {re.escape(title)}\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL):
        for member, cells in re.findall(r"^\| `(\w+)` \| (.+) \|$", text, re.MULTILINE):
            assert member not in found, f"{member} is listed twice below {title}"
            found[member] = " | " not in cells or cells.startswith(f"{MUST} | ")
    return found


@pytest.mark.parametrize(
    ("title", "kind", "base"),
    [
        ("Of `Source`", engine.Source, object),
        ("Of `StateAt`", engine.StateAt, object),
        ("Rows that say when they were valid", engine.HoldsPast, engine.StateAt),
        ("Changes that the engine keeps", engine.DeltaPart, object),
        ("Rows that one version wrote", written.Written, object),
        ("Edits", edits.EditPlan, object),
        ("Rows that move between tasks", edits.MovedRows, object),
        ("Rows that are moved as they are", edits.StoredSide, object),
    ],
)
def test_what_an_engine_must_and_may_write(title: str, kind: type, base: type) -> None:
    own = [name for name in dir(kind) if not name.startswith("_") and not hasattr(base, name)]
    assert listed(title) == {name: name in kind.__dict__["__abstractmethods__"] for name in own}


def test_the_public_classes_are_those_of_the_page() -> None:
    named = set(re.findall(r"`([A-Z][a-z]\w+)[`.]", PAGE))
    assert {"Source", "StateAt", "Engine", "DeltaPart", "HoldsPast", "RestoreCheck", "Job"} <= named
    assert named - set(statestore.engines.__all__) - {"None"} == set()
