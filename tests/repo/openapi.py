"""The API's document, made from its routes: `python -m tests.repo.openapi`."""

import json
from pathlib import Path
from typing import Final

from services.gateway.api import routes

FILE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "openapi.json"


def document() -> str:
    return json.dumps(routes().openapi(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")
