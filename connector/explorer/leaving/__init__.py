"""The explorer: a page on this machine that scrubs through the past of any state that can be read."""
