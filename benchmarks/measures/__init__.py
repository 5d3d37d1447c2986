"""The measures of the goals, one module each.

A module has a function ``measure(bench: Workbench) -> Iterator[Figure]``, which checks answers before it times them.
``MEASURES`` holds the modules in the order in which they run.
"""

MEASURES = (
    "first_use",  # before the others, which would pay for it
    "commits",
    "reads",
    "short_writers",
    "points",
    "duckdb_views",
    "changes",
    "late_shares",
    "compaction",
    "small_commits",
    "peers",
)
