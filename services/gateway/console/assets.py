"""Scripts and styles: our own, and those that `make setup` installs by version and hash."""

import hashlib
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

OWN: Final = Path(__file__).with_name("static")
#: name → its path among the installed packages
INSTALLED: Final = {
    "htmx.js": "htmx.org/dist/htmx.min.js",
    "sse.js": "htmx.org/dist/ext/hx-sse.min.js",
    "uplot.js": "uplot/dist/uPlot.iife.min.js",
    "uplot.css": "uplot/dist/uPlot.min.css",
}
TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
#: an address has the hash of its file, so a browser's copy is never old
KEEP: Final = {"cache-control": "public, max-age=31536000, immutable"}


class Assets:
    """Files by name, read once. installed: the folder of packages; None: there is none."""

    def __init__(self, installed: Path | None) -> None:
        self._files = {own.name: own.read_bytes() for own in sorted(OWN.iterdir())}
        self.is_complete = installed is not None and installed.is_dir()
        if installed is not None and self.is_complete:
            for name, path in INSTALLED.items():
                self._files[name] = (installed / path).read_bytes()
        self._digests = {
            name: hashlib.sha256(body).hexdigest()[:16] for name, body in self._files.items()
        }

    def url(self, name: str) -> str:
        return f"/console/assets/{self._digests[name]}/{name}"

    def answer(self, request: Request) -> Response:
        name = request.path_params["name"]
        if self._digests.get(name) != request.path_params["digest"]:
            return Response(status_code=404)
        return Response(self._files[name], media_type=TYPES[Path(name).suffix], headers=KEEP)
