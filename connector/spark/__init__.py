"""The door to Spark. Importing it without a Spark that it works with says which one that is."""

from statestore.connector.supported_spark import check_spark

check_spark()
