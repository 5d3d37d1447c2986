import random, json, os, pytest
from pathlib import Path
import pyarrow as pa
from statestore.catalog.stores.keyed.backend import KeyedBackend
from statestore.catalog.stores.keyed.snapshot_handle import handle_from_json

key = pa.schema([pa.field("k", pa.string(), nullable=False)])


def states(b):
    return (
        b.value_state("v", "bigint"),
        b.list_state("l", "string", namespace="bigint"),
        b.map_state("m", "string", "bigint"),
    )


def content(bs):
    return sorted((s, k, v) for b in bs for s in b.database.states() for k, v in b.database.rows(s))


@pytest.mark.parametrize("kinds", [("full",), ("incremental",), ("full", "incremental")])
def test_rescale(kinds, tmp_path):
    n = [0]

    def be(r, handles=()):
        n[0] += 1
        return KeyedBackend(tmp_path / f"db{n[0]}", key, r, 128, tmp_path / "store", handles)

    def split(p):
        return [range(128 * i // p, 128 * (i + 1) // p) for i in range(p)]

    bs = [be(r) for r in split(4)]
    rnd = random.Random(1)

    def fill(bs):
        st = [states(b) for b in bs]
        for i in range(500):
            k = f"k{rnd.randrange(200)}"
            for b, (v, l, m) in zip(bs, st):
                try:
                    b.set_current_key(k)
                except Exception:
                    continue
                v.update(i)
                l.set_current_namespace(i % 3)
                l.add(str(i))
                m.put(f"u{i % 5}", i)

    fill(bs)
    for step, p in enumerate((2, 7, 7, 1)):
        before = content(bs)
        runs = [b.snapshot(kinds[(i + step) % len(kinds)]) for i, b in enumerate(bs)]
        fill(bs)  # later writes are not in it
        handles = [handle_from_json(json.loads(json.dumps(r.result(30).to_json()))) for r in runs]
        for b in bs:
            b.dispose()
        bs = []
        for r in split(p):
            mine = [h for h in handles if h.key_groups.start < r.stop and r.start < h.key_groups.stop]
            bs.append(be(r, mine))
        assert content(bs) == before
        fill(bs)
    for b in bs:
        b.dispose()
    assert not [x for x in os.listdir(tmp_path) if x.startswith("db")]


def test_incremental_chain(tmp_path):
    b = KeyedBackend(tmp_path / "db", key, range(128), 128, tmp_path / "s")
    v, l, m = states(b)
    for i in range(20000):
        b.set_current_key(f"k{i}")
        v.update(i)
    h1 = b.snapshot("incremental").result()
    b.notify_complete(1, h1)
    for i in range(200):
        b.set_current_key(f"k{i}")
        v.update(-i)
    h2 = b.snapshot("incremental").result()
    new = set(h2.shared.values()) - set(h1.shared.values())
    print(
        len(h1.shared), len(h2.shared), len(new), sum(f.bytes for f in new) / sum(f.bytes for f in h1.shared.values())
    )
    assert len(new) < len(h2.shared)
    r = KeyedBackend(tmp_path / "db2", key, range(128), 128, tmp_path / "s", [h2])
    assert content([r]) == content([b])
    h3 = r.snapshot("incremental").result()
    assert set(h2.shared.values()) <= set(h3.shared.values())
    c = r.snapshot("full")
    c.cancel()
    try:
        c.result()
    except Exception as e:
        assert "CANCELLED" in str(e)
    b.dispose()
    r.dispose()
    with pytest.raises(Exception, match="BACKEND_CLOSED"):
        b.snapshot()
