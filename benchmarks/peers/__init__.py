"""Other tables with versions, which get the same commits: one module each, used where its package is installed."""
