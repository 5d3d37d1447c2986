"""The door to Spark. Importing this package without a supported Spark raises an error that names one."""

from statestore.connector.supported_spark import check_spark

check_spark()
