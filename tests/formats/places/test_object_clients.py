"""Errors of object stores say what is wrong and what to do."""

from __future__ import annotations

import pytest
from obstore.exceptions import GenericError

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StorageError
from statestore.formats.places.object_clients import request_errors

SERVICES = [
    "http://169.254.169.254/latest/api/token",
    "http://169.254.170.2/v2/credentials",
    "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token",
]


@pytest.mark.parametrize("service", SERVICES)
def test_a_client_without_credentials_is_said_to_have_none(service: str) -> None:
    """The text is that of obstore 0.12 where no service answers for the machine's role."""
    text = f"Generic S3 error: Error performing PUT {service} in 1.4ms - HTTP error: error sending request"
    with (
        pytest.raises(InvalidInputError, match="s3://b/w: cannot read: there are no credentials in") as raised,
        request_errors("read", "s3://b/w"),
    ):
        raise GenericError(f"{text}\n\nDebug source:\nGeneric {{}}")
    assert raised.value.code == ErrorCode.NO_ACCESS
    assert service in str(raised.value) and "Debug source" not in str(raised.value)


def test_a_server_that_does_not_answer_may_be_asked_again() -> None:
    text = "Generic S3 error: Error performing GET http://127.0.0.1:9/b in 1.4ms - HTTP error: error sending request"
    with (
        pytest.raises(StorageError, match="repeat the call once the object store answers again"),
        request_errors("read", "s3://b/w"),
    ):
        raise GenericError(text)
