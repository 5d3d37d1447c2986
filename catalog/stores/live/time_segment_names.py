"""Directory names of a live store's segments, as Kafka Streams names them."""

from __future__ import annotations

from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.stores.live.hot_tier import SegmentName
from statestore.formats.kafka_rows.time_segments import encode_time_segment_name


def time_segment_name_of(spec: StoreSpec) -> SegmentName | None:
    """Return a function from a segment's number to its directory in the hot tier; None for a kind without segments.

    The directory is ``<store>/<store>.<start in ms>``; for the store of 2016 ``rocksdb/<store>-<yyyyMMddHHmm>`` in UTC.
    """
    if spec.windowing is None:
        return None
    name, interval = spec.name, spec.windowing.segment_interval
    if spec.kind == "join_window":
        return lambda time_segment: f"rocksdb/{encode_time_segment_name(name, time_segment, interval, '-')}"
    return lambda time_segment: f"{name}/{encode_time_segment_name(name, time_segment, interval)}"
