"""The options of reads of Kafka Streams' stores, for every door. Times are milliseconds."""

from __future__ import annotations

from statestore.formats.engine import EngineOption

OPTIONS = (
    EngineOption("application", "text", "the application, where a state.dir has several", describes=True),
    EngineOption("kind", "text", "the kind of the store, such as timestamped-key-value or session", describes=True),
    EngineOption("keySerde", "text", "the serde of keys, such as string, long or avro:FILE", describes=True),
    EngineOption("valueSerde", "text", "the serde of values, or protobuf:FILE#MESSAGE", describes=True),
    EngineOption("windowSize", "int", "the size of windows in milliseconds, for the ends of windows", describes=True),
    EngineOption("retention", "int", "the retention in milliseconds: marks rows that Kafka hides", describes=True),
    EngineOption("hideExpired", "bool", "leave out rows that Kafka hides, by the retention; false", describes=True),
    EngineOption("storesFile", "text", "a TOML file with all of these by store", describes=True),
    EngineOption("topologyFile", "text", "a file with what Topology.describe() prints", describes=True),
    EngineOption("untilOffset", "text", "the last offset of a changelog that is read, or 0:12,1:7", describes=True),
    EngineOption("untilTime", "text", "read a changelog up to the first record after this moment", describes=True),
    EngineOption("consumerConfig", "text", "a file with librdkafka's settings for kafka://host:port", describes=True),
    EngineOption("allowUnflushed", "bool", "read stores whose rows may be in memory only; false", describes=True),
)
