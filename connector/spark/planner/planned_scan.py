"""The answers that every scan of a plan gives to Spark."""

from __future__ import annotations

from typing import Any

from statestore.connector.spark.jvm import CONNECTOR, JavaObject, Jvm
from statestore.connector.spark.planner.read_plan import ReadPlan


class PlannedScan(JavaObject):
    """The columns of a plan, and its text in EXPLAIN."""

    def __init__(self, jvm: Jvm, plan: ReadPlan, description: str) -> None:
        super().__init__(jvm)
        self._plan = plan
        self._description = description

    def readSchema(self) -> Any:
        return self._jvm.struct(self._plan.result)

    def description(self) -> str:
        return self._description

    def supportedCustomMetrics(self) -> Any:
        return self._jvm.array(CONNECTOR + "metric.CustomMetric", ())

    def reportDriverMetrics(self) -> Any:
        return self._jvm.array(CONNECTOR + "metric.CustomTaskMetric", ())

    def columnarSupportMode(self) -> Any:
        return self._jvm.constant(CONNECTOR + "read.Scan$ColumnarSupportMode", "UNSUPPORTED")
