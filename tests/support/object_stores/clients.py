"""Clients of the servers: obstore's own, as quick to try again as a test needs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from obstore.store import AzureStore, GCSStore, S3Store

from support.object_stores.azure_server import CONTAINER, AzureServer
from support.object_stores.gcs_server import ACCOUNT, GcsServer
from support.object_stores.gcs_server import BUCKET as GCS_BUCKET
from support.object_stores.s3_server import BUCKET, S3Server

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

Client = S3Store | AzureStore | GCSStore
Server = S3Server | AzureServer | GcsServer


def retries(most: int) -> RetryConfig:
    """Up to so many further requests, within milliseconds; obstore's own ten take up to minutes."""
    backoff = timedelta(milliseconds=5)
    return {
        "max_retries": most,
        "retry_timeout": timedelta(seconds=20),
        "backoff": {"init_backoff": backoff, "max_backoff": backoff * 4, "base": 2},
    }


def client(
    server: Server, place: str = "", *, endpoint: str = "", most_retries: int = 0, timeout_s: float = 20
) -> Client:
    """A client of a bucket or container, by default the first one; ``endpoint`` is that of a proxy."""
    options: ClientConfig = {"allow_http": True, "timeout": timedelta(seconds=timeout_s)}
    url, retry = endpoint or server.endpoint, retries(most_retries)
    if isinstance(server, S3Server):
        return S3Store(
            place or BUCKET, endpoint=url, access_key_id=server.access_key, secret_access_key=server.secret_key,
            region=server.region, client_options=options, retry_config=retry,
        )  # fmt: skip
    if isinstance(server, GcsServer):
        return GCSStore(
            place or GCS_BUCKET, base_url=url, service_account_key=ACCOUNT, client_options=options, retry_config=retry
        )
    return AzureStore(
        place or CONTAINER, account_name=server.account_name, account_key=server.account_key, endpoint=url,
        client_options=options, retry_config=retry,
    )  # fmt: skip
