"""Forty things that a new user types, in Python, a notebook, DuckDB and a shell: each works, or says what to do.

They are typed one after the other, as in a session.
"""

from __future__ import annotations

import ast
import io
import shlex
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.command_line import run

import statestore

PYTHON = [
    ("catalog = statestore.connect('warehouse')", ""),
    ("catalog", "warehouse"),
    ("catalog.create_store('prices', key=['item'], value=['price'])", "column name -> type name"),
    ("catalog.create_store('prices', kind='version', key={'item': 'string'}, value={'price': 'double'})", "versioned"),
    ("prices = catalog.create_store('prices', key={'item': 'string'}, value={'price': 'double'})", ""),
    ("catalog.create_store('prices', key={'item': 'string'}, value={'price': 'double'})", "if_missing='create'"),
    ("p = catalog.store('prices', key={'item': 'string'}, value={'price': 'double'}, if_missing='create')", ""),
    ("prices", "versioned store 'prices'"),
    ("prices.put('curry', 8.0, timestamp='2024-05-01T08:00Z')", "accepted=True"),
    ("prices.put('curry', 9.5, timestamp='2024-05-01 14:00')", "add one, like 2024-05-01 14:00Z"),
    ("prices.put('curry', 9.5, timestamp='2024-05-01T14:00Z')", "accepted=True"),
    ("prices.put_all(pandas.DataFrame({'item': ['naan'], 'price': [2.0]}))", "`timestamp`"),
    (
        "prices.put_all(polars.DataFrame({'item': ['naan'], 'price': [2.0], 'timestamp': [1714554000000]}))",
        "accepted=1",
    ),
    ("prices.commit()", "1"),
    ("prices.get('curry', as_of='2024-05-01T09:30Z')", "value=8.0"),
    ("prices.get('curry', as_of='2024-05-01')", "2024-05-01T00:00:00Z"),
    ("prices.scan(columns='item').to_arrow().column_names", "['item']"),
    ("prices.scan(columns=['prise'])", "it has item, price"),
    ("prices.scan(filter=('item', '=', 'curry')).to_pandas()", "curry"),
    ("prices.scan(filter='item = curry')", "expected a tuple"),
    ("prices.history('curry').to_polars().height", "2"),
    ("prices.scan(timestamp_as_of='2024-05-01T09:30Z')", "write as_of"),
    ("catalog['prices']", "versioned store 'prices'"),
    ("('prices' in catalog, list(catalog))", "(True, ['prices'])"),
    ("catalog.open_store('price')", "did you mean 'prices'?"),
    ("statestore.inspect('warehouse')['prices'].get('curry')['price']", "9.5"),
    ("statestore.inspect('checkpoint')['state'].scan().to_arrow().num_rows > 50", "True"),
    ("statestore.inspect('warehous')", "warehous is not a directory"),
    ("statestore.sql('warehouse', 'SELECT count(*) AS n FROM prices').to_pylist()", "[{'n': 2}]"),
    ("statestore.sql('warehouse', 'SELECT * FROM price')", "did you mean 'prices'?"),
    (
        "statestore.attach('warehouse').sql(\"SELECT price FROM prices_as_of('2024-05-01T08:30Z')\").fetchall()",
        "(8.0,)",
    ),
    ("statestore.attach('warehouse').sql(\"FROM prices_as_of('2024-05-01')\").fetchall()", "without a time zone"),
    ("statestore.attach('warehouse').sql(\"FROM history('prices')\").fetchall().__len__()", "3"),
    ("con = statestore.attach('warehouse')", ""),
    ('con.sql("FROM prices_at_version(1)").pl().height', "2"),
    ('con.cursor().sql("SELECT max(price) FROM prices").fetchall()', "(9.5,)"),
    ('con.sql("FROM prices_at_version(99)").fetchall()', "99"),
    ('con.sql("DELETE FROM prices")', "delete from base table"),
    (
        "statestore.sql('warehouse', \"FROM prices_as_of('2024-05-01T08:30Z')\")",
        "here write FROM prices TIMESTAMP AS OF",
    ),
    ("statestore.sql('warehouse', \"FROM at_version('prices', 1)\")", "here write FROM prices VERSION AS OF 3"),
    ("statestore.sql('warehouse', 'SELECT * FROM prices VERSION AS OF 99')", "99"),
    ("prices.scan(filter=('price', '>', '5'))", "expected double"),
    ("prices.expire(before='2999-01-01T00:00Z')", "in the future"),
    ("prices.get_many(['curry', 'dal'])[1]", "None"),
    ("prices.diff(start_version=0).to_pandas()", "added"),
    ("prices.scan().to_duckdb().fetchall().__len__()", "2"),
    ("[row for row in prices.scan()].__len__() > 0", "True"),
    ("catalog._repr_html_()", "prices"),
    ("prices.scan()._repr_html_()", "<td>curry</td>"),
    ("statestore.__version__", "."),
]
SHELL = [
    ("--version", 0, "statestore "),
    ("inspect warehouse", 0, "prices"),
    ("inspect checkpoint", 0, "state"),
    ("get warehouse prices curry --as-of 2024-05-01T09:30Z", 0, "8.0"),
    ("get warehouse prices curry --as-of 2024-04-01T09:30Z", 1, "the first value of this key is from 2024-05-01"),
    ("get warehouse prices curry --as-of 1714554000", 1, "for seconds write 1714554000000"),
    ("get warehouse prises curry", 1, "did you mean 'prices'?"),
    ("history warehouse prices curry", 0, "9.5"),
    ("sql warehouse 'SELECT max(price) AS most FROM prices'", 0, "9.5"),
    ("scan warehouse prices --format csv", 0, "curry,9.5"),
    ("scan warehouse/prices --format csv", 0, "curry,9.5"),
    ("versions checkpoint", 0, "batch"),
    ("-h", 0, "Time-travel tables"),
    ("ls warehouse", 2, "Did you mean 'inspect'?"),
    ("select warehouse", 2, "Did you mean 'sql'?"),
    ("inspect nowhere", 1, "nowhere is not a directory"),
    ("explore nowhere", 1, "nowhere is not a directory"),
    ("scan warehouse prices --where 'price > 5'", 0, "curry"),
    ("scan warehouse prices --as-of 2024-05-01", 2, "without a time zone"),
    ("diff warehouse prices --from 2024-05-01T08:30Z", 0, "8.0 → 9.5"),
    ("get checkpoint state key-00-", 0, "1070"),
    ("put warehouse prices dal six", 2, "expected double"),
    ("put warehouse prices dal 6.0 --timestamp 2024-05-01T15:00Z", 0, "version 2 of prices"),
    ("create warehouse raw --key k:binary --value n:int", 0, "created raw"),
    ("put warehouse raw hex:00ff 1", 0, "version 1 of raw"),
    ("scan warehouse raw", 0, "base64:AP8="),
    ("get warehouse raw base64:AP8= --json", 0, '"n": 1'),
    ("create other stock --key item:sting --value n:int", 2, "did you mean string"),
    ("inspect other", 1, "other is not a directory"),
    ("verify warehouse --format csv", 0, "prices,ok"),
    ("expire warehouse prices --before 2999-01-01T00:00Z", 2, "in the future"),
    ("compact warehouse prices --format tsv", 0, "prices"),
    ("sql warehouse \"FROM prices_as_of('2024-05-01T08:30Z')\"", 2, "TIMESTAMP AS OF"),
    ("sql warehouse 'SELEC 1'", 2, "INVALID_SQL"),
    ("export warehouse prices -o prices.parquet", 0, "prices.parquet"),
    ("report warehouse --key nobody", 1, "never had it"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("hour")
    (place / "checkpoint").symlink_to(checkpoint_path("spark4.3.0-agg__rkcl"))
    with chdir(place):
        yield place


def typed(text: str, names: dict[str, Any]) -> str:
    """Return the text that a notebook would show for a line: its value, or the error."""
    try:
        if isinstance(ast.parse(text).body[0], ast.Expr):
            return repr(eval(text, names))
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(text, names)
        return printed.getvalue()
    except Exception as error:
        return str(error)


def test_what_is_typed_works_or_says_what_to_do(folder: Path) -> None:
    import pandas
    import polars

    names: dict[str, Any] = {"statestore": statestore, "pandas": pandas, "polars": polars}
    wrong = []
    for text, shown in PYTHON:
        seen = typed(text, names)
        if shown not in seen or (shown == "" and seen != ""):
            wrong.append((text, seen))
    for line, code, shown in SHELL:
        found = run(*shlex.split(line))
        if found.code != code or shown not in found.out + found.err:
            wrong.append((line, f"{found.code} {found.out} {found.err}"))
    assert len(PYTHON) + len(SHELL) >= 40
    assert wrong == []
