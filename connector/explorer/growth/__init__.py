"""Why the state of a table grows: its size over versions, its keys, its places and its ages."""
