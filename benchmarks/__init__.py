"""Measurements. ``python -m benchmarks`` runs those of the goals; README.md says how, and what else is here."""
