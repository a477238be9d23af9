"""Settings of servers: where they may be, and what they call folders."""

import pytest
from pydantic import SecretStr, ValidationError

from services.engine.settings import EngineSettings


def test_servers_are_on_this_machine_unless_allowed() -> None:
    settings = EngineSettings(servers="http://127.0.0.1:8000, http://localhost:8001/")
    assert settings.server_urls == ("http://127.0.0.1:8000", "http://localhost:8001")
    with pytest.raises(ValidationError, match="TUNERY_ENGINE_SERVERS_ANYWHERE"):
        EngineSettings(servers="http://10.1.2.3:8000")
    assert EngineSettings(servers="http://10.1.2.3:8000", servers_anywhere=True).server_urls


@pytest.mark.parametrize("servers", ["ftp://localhost", "localhost:8000", "http://u:p@localhost"])
def test_what_is_no_address_is_refused(servers: str) -> None:
    with pytest.raises(ValidationError, match="is not http"):
        EngineSettings(servers=servers)


def test_folders_are_pairs() -> None:
    settings = EngineSettings(server_folders="/data=/mnt/data,/bases=/models")
    assert settings.folder_names == {"/data": "/mnt/data", "/bases": "/models"}
    with pytest.raises(ValidationError, match="is not /HERE=/THERE"):
        EngineSettings(server_folders="/data")


def test_the_key_is_never_shown() -> None:
    assert "word" not in repr(EngineSettings(server_key=SecretStr("word")))
