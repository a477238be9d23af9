"""Paths of what sessions save: which are read, and that their rows are those of one tenant."""

import pytest

from services.gateway.sessions.paths import SavedPath, parse_path
from services.gateway.web.domain.errors import ApiError
from tunery.platform.memory_servers import memory_servers

PATH = SavedPath("session-ab12", "weights", "epoch-1.best")


def test_a_path_is_read_as_it_is_shown() -> None:
    assert str(PATH) == "tinker://session-ab12/weights/epoch-1.best"
    assert parse_path(str(PATH), "path", "weights") == PATH


@pytest.mark.parametrize(
    "path",
    [
        "tinker://session-ab12/sampler_weights/a",
        "tinker://session-ab12/weights/../a",
        "tinker://session-ab12/weights/",
        "tinker://ftjob-ab12/weights/a",
        "tinker://session-ab12/weights/a\n",
        "s3://session-ab12/weights/a",
    ],
)
def test_anything_else_is_refused_with_the_form(path: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_path(path, "path", "weights")
    assert (caught.value.status, caught.value.param) == (400, "path")
    assert "tinker://SESSION/weights/NAME" in caught.value.message


async def test_the_same_path_of_two_tenants_is_found_in_two_rows() -> None:
    seal = (await memory_servers()).runtime("gateway").seal
    ids = {PATH.row_id(seal, tenant) for tenant in ("acme", "acme", "other")}
    assert len(ids) == 2
    assert not any("epoch" in each for each in ids)
