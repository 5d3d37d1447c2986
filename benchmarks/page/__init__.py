"""The page docs/performance.md, its plot, and the figures of the README, from the JSON lines of a run."""
