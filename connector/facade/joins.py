"""Joins and aggregations of Kafka Streams, record by record, for programs without an engine.

For tables of records at once, use `statestore.asof_join`.
"""

from __future__ import annotations

from statestore.catalog.joins.record_joins import StreamTableJoin, TableAggregation, TableTableJoin, count_by
from statestore.catalog.joins.table_side import Emitted

__all__ = ["Emitted", "StreamTableJoin", "TableAggregation", "TableTableJoin", "count_by"]
