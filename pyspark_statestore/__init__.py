"""Found by Spark without any call: a package named ``pyspark_…`` with a ``DefaultSource``.

Spark 4.0 would give up looking for any source if this import failed: there it finds nothing here.
"""

import contextlib

from statestore.formats.errors import UnsupportedError

with contextlib.suppress(UnsupportedError):
    from statestore.connector.spark.source import StateStoreSource

    class DefaultSource(StateStoreSource):
        """`spark.read.format("arrow_statestore")`, `CREATE TEMPORARY VIEW … USING arrow_statestore`."""
