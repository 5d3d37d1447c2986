"""What `register` changes in a session of Spark: readers, writers, statements and catalogs."""
