"""The client's objects have only fields that the API answers with."""

from typing import Any, Final, get_args, get_type_hints

import pytest
from pydantic import BaseModel

from services.gateway.accounts.domain.responses import (
    NewEndpointResponse,
    NewKeyResponse,
    TenantResponse,
)
from services.gateway.files.domain.responses import FileResponse
from services.gateway.jobs.domain.event_responses import JobEventResponse
from services.gateway.jobs.domain.responses import JobResponse
from services.gateway.models.domain.responses import BaseModelResponse, FineTunedModelResponse
from tunery.client import shapes

RESPONSES: Final[tuple[tuple[Any, type[BaseModel]], ...]] = (
    (shapes.FileObject, FileResponse),
    (shapes.JobObject, JobResponse),
    (shapes.EventObject, JobEventResponse),
    (shapes.ModelObject, FineTunedModelResponse),
    (shapes.BaseObject, BaseModelResponse),
    (shapes.TenantObject, TenantResponse),
    (shapes.KeyObject, NewKeyResponse),
    (shapes.EndpointObject, NewEndpointResponse),
)


@pytest.mark.parametrize(("shape", "response"), RESPONSES)
def test_every_field_is_one_of_the_response(shape: Any, response: type[BaseModel]) -> None:
    assert set(shape.__annotations__) <= set(response.model_fields)


@pytest.mark.parametrize(("shape", "response"), RESPONSES)
def test_a_field_that_may_be_null_says_so(shape: Any, response: type[BaseModel]) -> None:
    types = get_type_hints(shape)
    nullable = {name for name, kind in types.items() if type(None) in get_args(kind)}
    fields = response.model_fields
    assert nullable == {name for name in types if type(None) in get_args(fields[name].annotation)}
