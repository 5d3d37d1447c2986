import random, os, pytest, collections
from pathlib import Path
import pyarrow as pa
from statestore.catalog.storage import LocalStorage
from statestore.catalog.store_spec import StoreSpec
from statestore.catalog.stores.keyed.keyed_store import KeyedStore
from test_keyed_snapshots import content, states

key = pa.schema([pa.field("k", pa.string(), nullable=False)])


def store(p):
    return KeyedStore(LocalStorage(p), StoreSpec("s", "x", "keyed", key, pa.schema([]), None, None, "natural", 128))


def files(p):
    return {str(f.relative_to(p)) for d in ("tables", "shared", "private") for f in (p / d).glob("*")}


@pytest.mark.parametrize("seed", range(6))
def test_random_schedule(seed, tmp_path):
    r = random.Random(seed)
    p = tmp_path / "store"
    p.mkdir()
    s = store(p)
    kept = {}
    pend = None

    def split(n):
        return [range(128 * i // n, 128 * (i + 1) // n) for i in range(n)]

    def open_(n, version=None):
        return [s.backend(g, version=version, directory=tmp_path / "local") for g in split(n)]

    bs = open_(2)
    for step in range(40):
        op = r.randrange(5)
        if op < 2:
            for i in range(30):
                k = f"k{r.randrange(60)}"
                for b in bs:
                    try:
                        b.set_current_key(k)
                    except Exception as e:
                        assert "WRONG_KEY_GROUP" in str(e)
                        continue
                    v, l, m = states(b)
                    v.update(i)
                    l.set_current_namespace(i % 2)
                    l.add(str(step))
                    m.put(f"u{i % 3}", i)
        elif op == 2:
            kind = r.choice(["full", "incremental"])
            runs = [b.snapshot(kind) for b in bs]
            snap = content(bs)
            hs = [x.result() for x in runs]
            if r.random() < 0.2:  # a failed batch: parts thrown away
                names = set().union(*[set(h.files()) for h in hs])
                s._remove(names)
            else:
                try:
                    v = s.commit(hs, transaction=("app", step))
                    assert s.commit(hs, transaction=("app", step)) == v
                    kept[v] = snap
                    for b, h in zip(bs, hs):
                        b.notify_complete(v, h)
                except Exception as e:
                    assert "BASE_DISCARDED" in str(e), e
                    s._remove(set().union(*[set(h.files()) for h in hs]))
        elif op == 3 and kept:
            v = r.choice(list(kept))
            s.discard(v)
            kept.pop(v)
        elif op == 4:
            for b in bs:
                b.dispose()
            v = r.choice(list(kept) or [0])
            bs = open_(r.choice([1, 2, 3, 7]), v)
            assert content(bs) == kept.get(v, [])
        assert s.versions() == sorted(kept)
        needed = set(s._read().files())
        assert needed == files(p), (files(p) - needed, needed - files(p))
    for v, c in kept.items():
        bs2 = open_(3, v)
        assert content(bs2) == c
        [b.dispose() for b in bs2]
    [b.dispose() for b in bs]
    assert not os.listdir(tmp_path / "local")
