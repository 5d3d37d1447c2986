"""Whether Flink starts a job from a savepoint or checkpoint of another one, by Flink's own rules.

Source: ``Checkpoints.loadAndValidateCheckpoint`` (operators by id, max parallelism, state that no operator takes),
``StateAssignmentOperation.checkParallelismPreconditions`` (parallelism), ``RocksDBKeyedStateBackend`` and
``HeapKeyedStateBackend`` (``updateRestoredStateMetaInfo``, ``checkStateMetaInfo``), ``FullSnapshotRestoreOperation``
(keys) and ``DefaultOperatorStateBackend`` of Flink 1.20 and 2.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from statestore.formats.flink.job_description import DescribedOperator, DescribedState, JobDescription
from statestore.formats.flink.serializers.compatibility import AS_IS, compatibility
from statestore.formats.flink.serializers.flink_types import FlinkType, MapOf
from statestore.formats.flink.snapshot_states import TIMER_STATE
from statestore.formats.jobs import RestoreFinding, Verdict

_ORDER: tuple[Verdict, ...] = ("as is", "new", "unused", "after migration", "unknown", "lost", "incompatible")
_Part = tuple[Verdict, str]


def restore_findings(saved: JobDescription, job: JobDescription) -> list[RestoreFinding]:
    """A finding about every operator and state of a snapshot, for a job that is started from it."""
    found: list[RestoreFinding] = []
    if saved.version is not None and job.version is not None and saved.version > job.version:
        reason = (
            f"the snapshot's metadata has version {saved.version}, and the job's Flink writes version {job.version}: "
            "an older Flink does not read it"
        )
        found.append(RestoreFinding("", None, "incompatible", reason))
    new = {each.id: each for each in job.operators}
    for operator in saved.operators:
        if operator.id in new:
            found += _matched(operator, new[operator.id], job)
        else:
            found.append(_gone(operator))
    known = {each.id for each in saved.operators}
    for operator in job.operators:
        if operator.id not in known:
            found.append(RestoreFinding(operator.label, None, "new", _of_generated(operator)))
    return found


def _gone(operator: DescribedOperator) -> RestoreFinding:
    if not operator.holds_state:
        return RestoreFinding(operator.label, None, "unused", "the job has no such operator, and it has no state")
    reason = "the job has no such operator: Flink refuses without --allowNonRestoredState, and drops its state with it"
    more = _of_generated(operator)
    return RestoreFinding(operator.label, None, "lost", f"{reason}; {more}" if more else reason)


def _of_generated(operator: DescribedOperator) -> str:
    if operator.has_uid is False:
        return "the operator has no uid, so its id changes with the job's graph"
    return ""


def _matched(saved: DescribedOperator, job: DescribedOperator, whole: JobDescription) -> Iterator[RestoreFinding]:
    parts = [*_parallelism(saved, job), *_keyed_backend(saved, job), *_unreadable(saved, job)]
    generated = _of_generated(saved)
    verdict, reason = _worst(parts)
    if verdict == "as is" and generated:
        reason = f"{generated}; it is the same in this one"
    yield RestoreFinding(saved.label, None, verdict, reason)
    new = {(each.name, _space(each)): each for each in job.states}
    mine = {(each.name, _space(each)) for each in saved.states}
    for state in saved.states:
        other = new.get((state.name, _space(state)))
        if other is not None:
            yield RestoreFinding(saved.label, _shown(state), *_state(state, other, job))
        elif job.error is not None:
            yield RestoreFinding(saved.label, _shown(state), "unknown", "some of the job's state cannot be read")
        else:
            reason = "the job has no such state" if whole.is_whole else "the job has not registered such a state yet"
            yield RestoreFinding(saved.label, _shown(state), "unused", f"{reason}; Flink keeps it, unread")
    for state in job.states:
        if (state.name, _space(state)) not in mine:
            if saved.error is not None:
                yield RestoreFinding(
                    saved.label, _shown(state), "unknown", "some of the snapshot's state cannot be read"
                )
            else:
                yield RestoreFinding(saved.label, _shown(state), "new", "it begins empty")


def _shown(state: DescribedState) -> str:
    return state.name.removeprefix(TIMER_STATE)


def _space(state: DescribedState) -> str:
    """Flink keeps names of keyed states, operator lists and broadcast maps apart."""
    if state.is_keyed:
        return "timers" if state.form == "timers" else "keyed"
    return "broadcast" if state.form == "broadcast" else "list"


def _parallelism(saved: DescribedOperator, job: DescribedOperator) -> Iterator[_Part]:
    before, after = saved.max_parallelism, job.max_parallelism
    if before is None:
        return
    if job.parallelism is not None and job.parallelism > before:
        yield (
            "incompatible",
            f"parallelism {job.parallelism} is greater than the snapshot's max parallelism {before}",
        )
    if after is not None and after != before:
        if job.may_be_default:
            yield (
                "unknown",
                f"max parallelism {before} would be {after}, which is Flink's own choice for parallelism "
                f"{job.parallelism}: if the job does not set it, Flink takes {before}, else it refuses",
            )
        else:
            yield "incompatible", f"max parallelism {before} became {after}, which the job sets; Flink cannot change it"


def _keyed_backend(saved: DescribedOperator, job: DescribedOperator) -> Iterator[_Part]:
    # HeapRestoreOperation refuses RocksDB's handles by their class; RocksDBFullRestoreOperation takes those of a heap
    # snapshot for a canonical savepoint, whose form is another one.
    if None not in (saved.backend, job.backend) and saved.backend != job.backend:
        yield (
            "incompatible",
            f"state of backend {saved.backend} cannot be restored into {job.backend}; a canonical savepoint can",
        )
    keyed = [each for each in saved.states if each.is_keyed]
    if saved.key is None:
        if keyed:
            yield "unknown", "the type of the snapshot's keys is not known"
    elif job.key is None:
        yield "unknown", "the job's type of keys is not known"
    else:
        yield _unmigrated(saved.key, job.key, "key")


def _unreadable(saved: DescribedOperator, job: DescribedOperator) -> Iterator[_Part]:
    for each, what in ((saved, "the snapshot"), (job, "the job")):
        if each.error is not None:
            yield "unknown", f"some of the state of {what} cannot be read: {each.error.message}"
    if saved.custom:
        yield "unknown", f"it has {saved.custom}, which the job's own code reads"
    if saved.finished:
        yield (
            "unknown",
            "it had finished: Flink checks that the rest of its task, and the operators before it, had finished, too",
        )


def _state(saved: DescribedState, job: DescribedState, operator: DescribedOperator) -> _Part:
    if saved.form != job.form and "unknown" not in (saved.form, job.form):
        return "incompatible", f"kind {saved.form} became {job.form}"
    value = compatibility(saved.value, job.value)
    parts: list[_Part] = [(value.outcome, value.reason), *_api(saved, job)]
    if saved.namespace is not None and job.namespace is not None:
        parts.append(_unmigrated(saved.namespace, job.namespace, "namespace"))
    if saved.form == "timers" and value.outcome == "after migration":
        parts.append(("incompatible", f"timers are not migrated: {value.reason}"))
    if saved.map_key is not None and job.map_key is not None:
        key = compatibility(saved.map_key, job.map_key)
        parts.append((key.outcome, f"key: {key.reason}" if key.reason else ""))
    if saved.form == "map" and isinstance(saved.value, MapOf) and isinstance(job.value, MapOf):
        parts.append(_user_key(saved.value.key, job.value.key, operator))
    return _worst(parts)


def _api(saved: DescribedState, job: DescribedState) -> Iterator[_Part]:
    """Source: ``RocksDBKeyedStateBackend.tryRegisterKvStateInformation``, which casts the description of a state. ForSt
    takes some states of the first API, and fails on others, as those with a time to live.
    """
    if saved.is_second and job.is_second is False:
        yield (
            "incompatible",
            "it is state of Flink's second API, as ForSt has it, and the job's backend has it by the first one",
        )
    if saved.is_second is False and job.is_second:
        yield (
            "unknown",
            "it is state of Flink's first API, and the job's ForSt has it by the second one, which refuses some states",
        )


def _user_key(saved: FlinkType, job: FlinkType, operator: DescribedOperator) -> _Part:
    """Source: ``RocksDBKeyedStateBackend.checkMapStateKeySchemaCompatibility``; the heap backend rewrites keys."""
    found = compatibility(saved, job)
    if found.outcome != "after migration" or operator.backend == "heap":
        return "as is", ""
    if operator.backend == "rocksdb":
        return "incompatible", f"RocksDB does not migrate keys of map state: {found.reason}"
    return "unknown", f"RocksDB does not migrate keys of map state, the heap backend does: {found.reason}"


def _unmigrated(saved: FlinkType, job: FlinkType, what: str) -> _Part:
    """Keys and namespaces must be as they were."""
    found = compatibility(saved, job)
    if found == AS_IS:
        return "as is", ""
    if found.outcome == "after migration":
        return "incompatible", f"{what}s are not migrated: {found.reason}"
    return found.outcome, f"{what}: {found.reason}"


def _worst(parts: Sequence[_Part]) -> _Part:
    """The worst verdict, with the reasons of all that are as bad."""
    verdicts: list[Verdict] = ["as is", *(verdict for verdict, _ in parts)]
    verdict = max(verdicts, key=_ORDER.index)
    reasons: dict[str, None] = dict.fromkeys(reason for found, reason in parts if found == verdict and reason)
    return verdict, "; ".join(reasons)
