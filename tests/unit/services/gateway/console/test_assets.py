"""Scripts and styles are kept for ever under an address that has their hash."""

from pathlib import Path

from services.gateway.console.assets import INSTALLED, Assets
from tests.unit.services.gateway.console.consoles import console_of, visiting
from tests.unit.services.gateway.control_plane import ControlPlane


async def test_a_file_has_one_address_and_no_other(api: ControlPlane) -> None:
    async with visiting(console_of(api)) as browser:
        address = Assets(None).url("console.css")
        answer = await browser.get(address)
        assert answer.headers["content-type"].startswith("text/css")
        assert "immutable" in answer.headers["cache-control"]
        assert (await browser.get(address.replace("assets/", "assets/0"))).status_code == 404
        elsewhere = await browser.get("/console/assets/x/..%2Fapp.py")
        assert elsewhere.headers["location"].startswith("/console/sign-in"), "it is no file"


def test_installed_scripts_are_read_where_they_are(tmp_path: Path) -> None:
    assert not Assets(tmp_path / "none").is_complete
    for path in INSTALLED.values():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"1")
    assets = Assets(tmp_path)
    assert assets.is_complete
    assert assets.url("htmx.js").endswith("/htmx.js")
