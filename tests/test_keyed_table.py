import pickle, pytest, pyarrow as pa
from test_keyed_store import store, key
from test_keyed_snapshots import states
from statestore.catalog.stores.keyed.keyed_table import KeyedTable
from statestore.catalog.table_reads import ReadableTable


@pytest.mark.parametrize("kinds", [("full", "full"), ("incremental", "full"), ("incremental", "incremental")])
def test_reads(kinds, tmp_path):
    p = tmp_path / "s"
    p.mkdir()
    s = store(p)
    bs = [s.backend(r, directory=tmp_path / "l") for r in (range(0, 50), range(50, 128))]
    vs = []
    for rnd in range(2):
        for i in range(300):
            k = f"k{i}"
            for b in bs:
                try:
                    b.set_current_key(k)
                except Exception:
                    continue
                v, l, m = states(b)
                if i <= 200 + rnd * 50:
                    v.update(i * (rnd + 1))
                    l.set_current_namespace(1)
                    l.add("x")
                    m.put("u", i)
        vs.append(s.commit([b.snapshot(kd).result() for b, kd in zip(bs, kinds)]))
    for st in "vlm":
        t = pickle.loads(pickle.dumps(KeyedTable(p, s.spec, st)))
        r = ReadableTable(t)
        one = r.scan(version=vs[0]).read_all()
        two = r.scan(version=vs[1]).read_all()
        print(one.schema.names, one.num_rows, two.num_rows)
        assert sorted(set(one["k"].to_pylist())) == sorted(f"k{i}" for i in range(201))
        assert len(set(two["k"].to_pylist())) == 251
        if st == "v":
            assert dict(zip(two["k"].to_pylist(), two["value"].to_pylist())) == {f"k{i}": 2 * i for i in range(251)}
            assert r.scan(filter=("k", "=", "k7")).read_all()["value"].to_pylist() == [14]
            from statestore.formats.state_table import Query
            from statestore.formats.filters import Filter

            assert len(t.splits(Query(filters=(Filter("k", "=", "k7"),)))) == 1
        d = r.diff(vs[0], vs[1]).read_all().to_pylist()
        if st == "v":
            assert sum(x["_change"] == "added" for x in d) == 50 and sum(x["_change"] == "changed" for x in d) == 200
