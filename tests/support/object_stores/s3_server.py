"""A real S3 server: the gateway versitygw over a folder, as a process of its own.

Every put that it has answered is a file by then, so it can be killed and started again over the same folder. Puts with
a condition are atomic, also among several gateways over one folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from support.object_stores.server_process import HOST, ServerProcess, started
from support.object_stores.server_tools import do_without, s3_gateway

BUCKET = "states"
ACCESS_KEY, SECRET_KEY = "tests-of-states", "se/cr+et=of&tests"  # with what has to be quoted in a URI
REGION = "us-east-1"


@dataclass(frozen=True)
class S3Server:
    """A running server. ``endpoint`` is its URL; each folder in ``folder`` is a bucket."""

    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)
    region: str
    folder: Path
    process: ServerProcess = field(repr=False)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def port(self) -> int:
        return self.process.port

    def warehouse(self, prefix: str, bucket: str = BUCKET, endpoint: str = "") -> str:
        """The URI of a warehouse, with all that a client needs; ``endpoint`` is that of a proxy before the server."""
        scheme, _, place = (endpoint or self.endpoint).partition("://")
        options = {
            "endpoint_override": place, "scheme": scheme, "access_key": self.access_key,
            "secret_key": self.secret_key, "region": self.region,
        }  # fmt: skip
        return f"s3://{bucket}/{prefix}?{urlencode(options)}"

    def environment(self) -> dict[str, str]:
        """Return the variables by which tools find this server and its keys."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    def make_bucket(self, bucket: str) -> None:
        """Make an empty bucket, if there is none of the name."""
        (self.folder / bucket).mkdir(exist_ok=True)

    def kill(self) -> None:
        """End the server with SIGKILL. `running_s3_server` starts it again, given its folder and port."""
        self.process.kill()


@contextmanager
def running_s3_server(
    folder: Path,
    *,
    buckets: Sequence[str] = (BUCKET,),
    access_key: str = ACCESS_KEY,
    secret_key: str = SECRET_KEY,
    port: int = 0,
) -> Iterator[S3Server]:
    """A server with its objects in ``folder``, until the block ends, come what may. Port 0 is a free one."""
    program, data, log = s3_gateway(), folder / "buckets", folder / "gateway.log"
    data.mkdir(parents=True, exist_ok=True)
    _check_attributes(data)
    credentials = ["--access", access_key, "--secret", secret_key, "--region", REGION]

    def command(chosen: int) -> list[str]:
        place = ["--port", f"{HOST}:{chosen}"]
        return [str(program), *place, *credentials, "--keep-alive", "--quiet", "posix", str(data)]

    process = started(command, log, port)
    try:
        found = S3Server(f"http://{HOST}:{process.port}", access_key, secret_key, REGION, data, process)
        for bucket in buckets:
            found.make_bucket(bucket)
        yield found
    finally:
        process.kill()


def _check_attributes(folder: Path) -> None:
    """The gateway keeps what it knows of an object in extended attributes of its file."""
    try:
        os.setxattr(folder, "user.statestore", b"")
    except OSError as error:
        do_without(f"{folder} has no extended attributes ({error}), which versitygw needs; TMPDIR names another place")
