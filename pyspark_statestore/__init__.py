"""Found by Spark without any call: a package named ``pyspark_…`` with a ``DefaultSource``."""

from statestore.connector.spark.source import StateStoreSource


class DefaultSource(StateStoreSource):
    """`spark.read.format("arrow_statestore")`, `CREATE TEMPORARY VIEW … USING arrow_statestore`."""
