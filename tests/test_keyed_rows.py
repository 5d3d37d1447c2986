import pyarrow as pa, numpy as np
from statestore.catalog.stores.keyed.backend import KeyedBackend
from statestore.catalog.stores.keyed.state_table_rows import decoder, encoder


def test_round_trip(tmp_path):
    key = pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("n", pa.int32(), nullable=False)])
    b = KeyedBackend(tmp_path / "db", key, range(0, 300), 300)
    M = b.map_state("m", "string", "bigint", namespace={"a": "string"})
    L = b.list_state("l", "struct<a:int,b:string>")
    V = b.value_state("v", "double")
    for i in range(200):
        b.set_current_key({"k": f"k{i}\0", "n": -i})
        M.set_current_namespace(f"n{i % 3}")
        M.put("uk\0", 3 if i % 2 else None)
        L.add({"a": i, "b": None})
        L.add({"a": None, "b": "x"})
        V.update(i / 3)
    for s in "mlv":
        rows = list(b.database.rows(s))
        st = pa.RecordBatch.from_arrays(
            [pa.array([r[0] for r in rows], pa.binary()), pa.array([r[1] for r in rows], pa.binary())],
            names=["key", "value"],
        )
        d = decoder(key, b._spec(s))(st)
        assert (np.diff(d.groups) >= 0).all()
        e = encoder(key, b._spec(s))(d)
        assert e.column(0).equals(st.column(0)) and e.column(1).equals(st.column(1))
        print(d.rows.slice(0, 1).to_pylist())
