"""Joins and aggregations of Kafka Streams, record by record, for programs without an engine.

For tables of records at once, use `statestore.asof_join`.
"""

from __future__ import annotations

from statestore.catalog.joins.stream_table import StreamTableJoin
from statestore.catalog.joins.table_aggregation import TableAggregation, count_by
from statestore.catalog.joins.table_side import Emitted
from statestore.catalog.joins.table_table import TableTableJoin

__all__ = ["Emitted", "StreamTableJoin", "TableAggregation", "TableTableJoin", "count_by"]
