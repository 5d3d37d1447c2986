"""Reads that Spark's planner shapes: columns, filters, limits, orders and aggregates reach the source."""
