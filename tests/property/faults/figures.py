"""The table of docs/reliability.md from reports of campaigns: ``python tests/property/faults/figures.py REPORT``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

COLUMNS = ("kinds", "trials", "struck", "errors raised", "killed", "findings")


def table(reports: list[Path]) -> str:
    """One row for each sweep, its kinds of stores added up."""
    rows: dict[str, Counter[str]] = {}
    kinds: dict[str, set[str]] = {}
    for line in (line for report in reports for line in report.read_text().splitlines()):
        entry = json.loads(line)
        sweep, _, kind = entry.pop("sweep").partition(", ")
        found = rows.setdefault(sweep, Counter())
        kinds.setdefault(sweep, set()).add(kind)
        found["findings"] += len(entry.pop("findings"))
        found.update({name: value for name, value in entry.items() if name in COLUMNS})
    lines = [f"| sweep | {' | '.join(COLUMNS)} |", "| --- |" + " --- |" * len(COLUMNS)]
    for sweep, found in sorted(rows.items()):
        found["kinds"] = len(kinds[sweep])
        lines.append(
            f"| {sweep} | " + " | ".join(str(found[name] or "") for name in COLUMNS[:-1]) + f" | {found['findings']} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table([Path(name) for name in sys.argv[1:]]))
