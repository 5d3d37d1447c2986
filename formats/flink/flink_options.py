"""Options of reads of Flink's state, for every door."""

from __future__ import annotations

from statestore.formats.engine_offer import EngineOption

OPTIONS = (
    EngineOption("job", "text", "Of several jobs in a folder, the one with this id or its first digits."),
    EngineOption(
        "uids",
        "text",
        "Uids of operators, a,b,c: snapshots of Flink 1.x have only their hashes.",
        describes=True,
    ),
    EngineOption(
        "type",
        "text",
        "Types of states, operator.state=type; operator.state.key=type: names for fields, or how to read bytes of a "
        "serializer of the job's own, where utf is a text of Java's writeUTF, string one of Flink's StringSerializer; "
        "types of states of PyFlink; the form of a connector, such as kafka_split; or classes of the job that Kryo "
        "writes, class:shop.Item=class<String sku, int qty, List<String> tags> and class:shop.Color=enum<RED, GREEN>; "
        "or a subclass of a POJO that the file does not describe, class:shop.Dog=struct<barks: boolean> extends "
        "shop.Animal.",
        describes=True,
    ),
    EngineOption(
        "classes",
        "text",
        "Jars of the job, or folders of its class files, a.jar,b.jar: values of Kryo are read by the classes in them.",
        describes=True,
    ),
    EngineOption(
        "allowOutsideFiles",
        "bool",
        "Read files that a snapshot on a local disk names outside of the folder with the job's folder; a forged "
        "one may name any.",
        describes=True,
    ),
)

MAX_PARALLELISM, RENAME_OPERATOR, DROP = "max_parallelism", "rename_operator", "drop"
EDIT_SETTINGS = (
    EngineOption(
        MAX_PARALLELISM,
        "int",
        "another max parallelism, 1 to 32768: keys move to the key groups that they then have",
    ),
    EngineOption(
        RENAME_OPERATOR,
        "text",
        "other uids of operators, old=new,old2=new2; a new one may be an id of 32 hexadecimal digits",
    ),
    EngineOption(
        DROP, "text", "operators, and single states of operators, that the target lacks: operator,operator2.state"
    ),
)
"""Settings of edits (`statestore.formats.engine_offer.Engine.edit_settings`)."""
