import random, collections
from pathlib import Path
import pyarrow as pa, pytest
from statestore.catalog.stores.keyed.backend import KeyedBackend


class Avg:
    accumulator_type = "struct<n:bigint,s:bigint>"

    def create(self):
        return {"n": 0, "s": 0}

    def add(self, v, a):
        return {"n": a["n"] + 1, "s": a["s"] + v}

    def result(self, a):
        return a["s"] / a["n"]

    def merge(self, a, b):
        return {"n": a["n"] + b["n"], "s": a["s"] + b["s"]}


@pytest.mark.parametrize("seed", range(20))
def test_model(seed, tmp_path):
    r = random.Random(seed)
    b = KeyedBackend(tmp_path / "db", pa.schema([pa.field("k", pa.string(), nullable=False)]), range(0, 128), 128)
    V = b.value_state("v", "bigint", default=-1)
    L = b.list_state("l", "string", namespace="bigint")
    M = b.map_state("m", "string", "bigint", namespace={"a": "string", "b": "int"})
    R = b.reducing_state("r", "bigint", lambda x, y: x + y, namespace="string")
    A = b.aggregating_state("a", Avg(), namespace="bigint")
    v = {}
    l = collections.defaultdict(list)
    m = collections.defaultdict(dict)
    rr = {}
    a = collections.defaultdict(list)
    for step in range(400):
        k = r.choice(["", "a", "a\0b", "éé", "zz"])
        b.set_current_key(k)
        n = r.randrange(3)
        s = r.choice(["", "x", "x\0"])
        L.set_current_namespace(n)
        M.set_current_namespace({"a": s, "b": n})
        R.set_current_namespace(s)
        A.set_current_namespace(n)
        op = r.randrange(16)
        x = r.randrange(100)
        if op == 0:
            V.update(x)
            v[k] = x
        elif op == 1:
            V.clear()
            v.pop(k, None)
        elif op == 2:
            L.add(str(x))
            l[k, n].append(str(x))
        elif op == 3:
            L.add_all(["p", "q"])
            l[k, n] += ["p", "q"]
        elif op == 4:
            L.update(["u"])
            l[k, n] = ["u"]
        elif op == 5:
            L.clear()
            l.pop((k, n), None)
        elif op == 6:
            L.merge_namespaces(0, [1, 2, 0])
        elif op == 7:
            M.put(s, x)
            m[k, s, n][s] = x
        elif op == 8:
            M.put_all({"i": x, "j": None})
            m[k, s, n].update({"i": x, "j": None})
        elif op == 9:
            M.remove("i")
            m[k, s, n].pop("i", None)
        elif op == 10:
            M.clear()
            m.pop((k, s, n), None)
        elif op == 11:
            R.add(x)
            rr[k, s] = rr.get((k, s), 0) + x
        elif op == 12:
            R.merge_namespaces("x", ["", "x", "x\0"])
            t = [rr.pop((k, q)) for q in ("", "x", "x\0") if (k, q) in rr]
            rr.update({(k, "x"): sum(t)} if t else {})
        elif op == 13:
            A.add(x)
            a[k, n].append(x)
        elif op == 14:
            A.merge_namespaces(1, [0, 2])
            t = a.pop((k, 1), []) + a.pop((k, 0), []) + a.pop((k, 2), [])
            a[k, 1] = t
        elif op == 15:
            R.clear()
            rr.pop((k, s), None)
        if op == 6:
            l[k, 0] = l.pop((k, 0), []) + l.pop((k, 1), []) + l.pop((k, 2), [])
        assert V.value() == v.get(k, -1)
        assert L.get() == l.get((k, n), [])
        assert (
            dict(M.entries()) == m.get((k, s, n), {})
            and M.is_empty() == (not m.get((k, s, n)))
            and M.contains("i") == ("i" in m.get((k, s, n), {}))
            and M.get("i") == m.get((k, s, n), {}).get("i")
        )
        assert R.get() == rr.get((k, s))
        t = a.get((k, n))
        assert A.get() == (sum(t) / len(t) if t else None)
    assert sorted(b.keys("v")) == sorted(v)
    assert sorted(b.keys("l", 1)) == sorted(k for (k, n), x in l.items() if n == 1 and x)
    assert sorted(b.keys("m", {"a": "x", "b": 2})) == sorted(
        k for (k, s, n), x in m.items() if (s, n) == ("x", 2) and x
    )
    assert b.num_entries() == len(v) + sum(map(len, l.values())) + sum(map(len, m.values())) + len(rr) + sum(
        1 for x in a.values() if x
    )
    b.dispose()
    with pytest.raises(Exception, match="BACKEND_CLOSED"):
        V.value()


def test_columns(tmp_path):
    from statestore.catalog.stores.keyed.row_keys import stored_key
    from statestore.formats.serdes import natural_keys
    from statestore.formats.flink.key_groups import key_groups

    key = pa.schema([pa.field("k", pa.string(), nullable=False)])
    b = KeyedBackend(tmp_path / "db", key, range(0, 128), 128)
    M = b.map_state("m", "string", "bigint", namespace={"a": "string"})
    L = b.list_state("l", "int")
    V = b.value_state("v", "double")
    for k in ("x", "a\0", "é"):
        b.set_current_key(k)
        M.set_current_namespace("n\0")
        M.put("uk\0", 3)
        L.add(4)
        L.add(5)
        V.update(2.5)
    for s in ("m", "l", "v"):
        keys = pa.array([k for k, _ in b.database.rows(s)], pa.binary())
        cols = natural_keys.keys_from_bytes(stored_key(key, b._spec(s)), keys)
        got = dict(zip(stored_key(key, b._spec(s)).names, [c.to_pylist() for c in cols]))
        assert got["_group"] == key_groups([cols[1]], 128).tolist() == sorted(got["_group"])
        assert set(got["k"]) == {"x", "a\0", "é"}
        if s == "m":
            assert set(got["a"]) == {"n\0"} and set(got["user_key"]) == {"uk\0"}
        if s == "l":
            assert len(got["position"]) == 6
