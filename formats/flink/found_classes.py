"""Classes of a job that values of Kryo name, looked up in the job's jars while rows are read.

A read knows the classes that its sample has met. Where it meets another one, the class is looked up, and the rows are
read once more from there on. So no value depends on where it lies among others, and no class is read that no value has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa

from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.columns.faults import OpaqueClassError, reworded
from statestore.formats.flink.java_classes.job_code import JobCode
from statestore.formats.flink.layouts.kryo_classes import is_public
from statestore.formats.flink.serializers.flink_types import FlinkType, KryoOf
from statestore.formats.flink.serializers.job_classes import JobClass

Change = Callable[[FlinkType], FlinkType]
"""Changes a type so that it knows the classes that were found."""


def with_classes(kind: FlinkType, found: Mapping[str, JobClass]) -> FlinkType:
    """The type, which knows these classes besides its own, if it is one of Kryo.

    Where the job gave serializers for all subclasses of a class, one of them may write any class.
    """
    if not isinstance(kind, KryoOf) or kind.has_defaults:
        return kind
    known = {each.name: each for each in kind.classes}
    every = {**found, **known}
    return kind if len(every) == len(known) else replace(kind, classes=tuple(every[name] for name in sorted(every)))


def rows_with_classes(
    code: JobCode, read: Callable[[Change | None], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that ``read`` yields for a change of types, with the classes that values are found to have.

    ``read`` yields the same rows in the same order each time. Raises what it raises, and InvalidInputError
    INVALID_OPTION for a damaged jar or class file.
    """
    done = 0
    while True:
        known, left = dict(code.used), done
        try:
            for batch in read(partial(with_classes, found=known) if known else None):
                if left and left >= batch.num_rows:
                    left -= batch.num_rows
                    continue
                rest, left = batch.slice(left), 0
                done += rest.num_rows
                yield rest
        except OpaqueClassError as error:
            found = [each for name in error.classes for each in _looked_up(name, code)]
            new = {each.name: each for each in found if each.name not in known}
            if not new and not (code and error.classes):
                raise  # an error that is its own cause would keep the frames of the read, and the files open in them
            if not new:
                raise _explained(error, code) from error
            code.used.update(new)
        else:
            return


def _looked_up(name: str, code: JobCode) -> list[JobClass]:
    """The classes of the jars that say how objects of a class are written, none where they do not have it."""
    if not code or is_public(name):
        return []
    enum = code.enum_of(name)
    return list(code.reached_from(name)) if enum is None else [enum]


def _explained(error: OpaqueClassError, code: JobCode) -> UnsupportedError:
    """The error, with what the jars have of the class."""
    name = error.classes[0]
    reason = code.reason(name)
    return reworded(error, f"{error.message}; {reason}")
