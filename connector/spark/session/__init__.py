"""The parts of a session of Spark that `register` changes: readers, writers, statements and catalogs."""
