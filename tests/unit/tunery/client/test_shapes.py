"""The client's objects have only fields that the API answers with."""

from typing import Any

import pytest
from pydantic import BaseModel

from services.gateway.accounts.responses import NewEndpointResponse, NewKeyResponse, TenantResponse
from services.gateway.files.responses import FileResponse
from services.gateway.jobs.event_responses import JobEventResponse
from services.gateway.jobs.responses import JobResponse
from services.gateway.models.responses import FineTunedModelResponse
from tunery.client import shapes


@pytest.mark.parametrize(
    ("shape", "response"),
    [
        (shapes.FileObject, FileResponse),
        (shapes.JobObject, JobResponse),
        (shapes.EventObject, JobEventResponse),
        (shapes.ModelObject, FineTunedModelResponse),
        (shapes.TenantObject, TenantResponse),
        (shapes.KeyObject, NewKeyResponse),
        (shapes.EndpointObject, NewEndpointResponse),
    ],
)
def test_every_field_is_one_of_the_response(shape: Any, response: type[BaseModel]) -> None:
    assert set(shape.__annotations__) <= set(response.model_fields)
