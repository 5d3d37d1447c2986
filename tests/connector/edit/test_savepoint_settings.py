"""Settings of edits of Flink's state through the public door, whose target is verified as any other."""

from __future__ import annotations

from pathlib import Path

from support.flink.fixtures import fixture, manifest

import statestore


def test_a_target_has_other_key_groups_and_uids_and_lacks_an_operator(tmp_path: Path) -> None:
    source = fixture("sql") / manifest("sql")["snapshots"][1]["path"]
    before = statestore.inspect(source)
    kept = [name for name in sorted(before) if not name.startswith("Join[11]")]
    assert 0 < len(kept) < len(before)
    settings = {"max_parallelism": "256", "drop": "Join[11]", "rename_operator": "GroupAggregate[4]=sums"}
    with statestore.edit(source, tmp_path / "target", settings=settings) as edit:
        told = str(edit.preview())
    assert "Join[11] is not in the target" in told
    assert edit.receipt is not None
    assert edit.receipt.options["settings"] == settings
    after = statestore.inspect(tmp_path / "target")
    assert set(after) == {name.replace("GroupAggregate[4]", "sums") for name in kept}
    rows = [place[name].scan().to_arrow() for place, name in ((before, kept[0]), (after, min(after)))]
    old, new = (sorted(map(str, each.drop(["key_group", "stored_bytes"]).to_pylist())) for each in rows)
    assert len(old) > 10
    assert old == new
