"""The server of the explorer: who may ask it, its routes, and its start."""
