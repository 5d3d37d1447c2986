"""Catalogs of Spark SQL whose tables are those at a path."""
