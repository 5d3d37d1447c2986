"""Nobody but a browser of this machine with the token is answered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2 as httpx
import pytest
from starlette.responses import PlainTextResponse
from support.parameters import mostly_slow

import statestore
from statestore.connector.explorer.guard import Guard
from statestore.connector.explorer.server import Explorer


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    warehouse = tmp_path_factory.mktemp("guard")
    statestore.connect(warehouse).create_store("s", key={"k": "string"}, value={"n": "bigint"}).close()
    made = statestore.explore(warehouse)
    yield made
    made.stop()


def test_questions_need_the_token(explorer: Explorer) -> None:
    token = parse_qs(urlsplit(explorer.url).query)["token"][0]
    base = explorer.url.partition("?")[0]
    assert len(token) >= 32 and base.startswith("http://127.0.0.1:")
    with httpx.Client(base_url=base) as client:
        assert client.get("/").status_code == 200
        assert client.get("/static/app.js").status_code == 200
        for headers in ({}, {"x-statestore-token": "wrong"}, {"x-statestore-token": ""}):
            assert client.get("/api/overview", headers=headers).status_code == 403
        assert client.get("/api/overview", headers={"x-statestore-token": token}).status_code == 200
        # A cookie would also go to servers of other users on this machine, whose ports are others.
        assert "set-cookie" not in client.get(f"/?token={token}").headers
        twice = [("x-statestore-token", token), ("x-statestore-token", "wrong")]
        assert client.get("/api/overview", headers=twice).status_code == 403


def test_a_name_that_leads_here_is_refused(explorer: Explorer) -> None:
    """DNS rebinding: the page of another site asks under its own name."""
    token = parse_qs(urlsplit(explorer.url).query)["token"][0]
    port = urlsplit(explorer.url).port
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.evil.example:{port}", ""):
            for path in ("/", "/static/app.js", "/api/overview"):
                found = client.get(path, headers={"host": host, "x-statestore-token": token})
                assert found.status_code in (400, 421), (host, path)


def test_at_the_usual_port_a_browser_names_none() -> None:
    hosts = {port: Guard(PlainTextResponse("here"), "token", port)._hosts() for port in (80, 8080)}
    assert {"127.0.0.1", "127.0.0.1:80", "localhost"} < set(hosts[80])
    assert "127.0.0.1" not in hosts[8080] and "localhost:8080" in hosts[8080]


def test_every_answer_has_the_policy_without_eval(explorer: Explorer) -> None:
    with httpx.Client(base_url=explorer.url.partition("?")[0]) as client:
        for path in ("", "static/app.js", "api/overview"):
            headers = client.get(path).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"


def test_nothing_but_the_given_paths_is_served(explorer: Explorer) -> None:
    token = parse_qs(urlsplit(explorer.url).query)["token"][0]
    with httpx.Client(base_url=explorer.url.partition("?")[0], headers={"x-statestore-token": token}) as client:
        for path in ("static/../serve.py", "static/%2e%2e/serve.py", "static/", "api/", "etc/passwd"):
            assert client.get(path).status_code == 404
        for path in ("job", "news", "tables", "rows", "sql"):
            wrong = client.get(f"api/{path}?place=x&sql=SELECT+1")
            assert wrong.status_code == 400 and "expected a whole number" in wrong.text
        assert client.get("api/rows", params={"place": "0", "table": "../s"}).status_code in (400, 404)


def test_it_ends_and_removes_its_files(tmp_path: Path) -> None:
    made = statestore.explore(tmp_path)
    folder = Path(made._folder.name)
    assert folder.is_dir() and "iframe" in made._repr_html_() and made.url in repr(made)
    made.stop()
    assert not folder.exists()
    with pytest.raises(httpx.ConnectError):
        httpx.get(made.url)


BROWSER = """#!{python}
import json, os, sys, urllib.parse, urllib.request
page = urllib.request.url2pathname(urllib.parse.urlsplit(sys.argv[1]).path)
modes = [oct(os.stat(each).st_mode & 0o777) for each in (page, os.path.dirname(page))]
with open({said!r}, "w") as file:
    json.dump([sys.argv[1], modes, open(page).read()], file)
"""


@pytest.mark.parametrize("ending", mostly_slow([signal.SIGTERM, signal.SIGINT, signal.SIGHUP], {signal.SIGTERM}))
def test_the_command_serves_until_it_is_ended(tmp_path: Path, ending: signal.Signals) -> None:
    """The browser is started with the name of a private file, which leads to the address; nothing is left of it."""
    statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"n": "bigint"}).close()
    browser, said = tmp_path / "browser", tmp_path / "said"
    browser.write_text(BROWSER.format(python=sys.executable, said=str(said)))
    browser.chmod(0o700)
    os.mkfifo(said)
    command = [sys.executable, "-m", "statestore", "explore", str(tmp_path)]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1", "BROWSER": f"{browser} %s"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as serving:
        try:
            assert serving.stdout is not None
            url = serving.stdout.readline().strip()
            address, modes, page = json.loads(said.read_text())  # waits for the browser
            token = parse_qs(urlsplit(url).query)["token"][0]
            assert address.startswith(f"file://{tmp_path}") and token not in address
            assert modes == ["0o600", "0o700"] and f'content="0; url={url}"' in page
            found = httpx.get(url.partition("?")[0] + "api/overview", headers={"x-statestore-token": token}, timeout=30)
            assert [each["store"] for each in found.json()[0]["tables"]] == ["s"]
            assert list(tmp_path.glob("statestore-explorer-*"))
            serving.send_signal(ending)
            assert serving.wait(60) == (143 if ending == signal.SIGTERM else 0)
        finally:
            serving.kill()
    assert not list(tmp_path.glob("statestore-explorer-*"))


def test_wrong_calls(explorer: Explorer, tmp_path: Path) -> None:
    with pytest.raises(statestore.InvalidInputError, match="at least one path"):
        statestore.explore()
    with pytest.raises(statestore.InvalidInputError, match="port"):
        statestore.explore(tmp_path, port=urlsplit(explorer.url).port or 0)
