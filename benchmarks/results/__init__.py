"""Figures: what is written down of a measurement, as JSON lines and as a table."""
