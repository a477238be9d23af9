"""The API's document, made from its routes: `python -m tests.repo.openapi`.

It is 28,000 lines long, so it is built and not committed. What reviews see of it is a line for each
operation in `docs/reference/operations.txt`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from services.gateway.api import routes

ROOT: Final = Path(__file__).resolve().parents[2]
FILE: Final = ROOT / "dist" / "openapi.json"
LIST: Final = ROOT / "docs" / "reference" / "operations.txt"
METHODS: Final = ("get", "post", "put", "patch", "delete")


def document() -> str:
    return json.dumps(routes().openapi(), indent=1, ensure_ascii=False) + "\n"


def operations(api: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and operation, by path."""
    for path, item in sorted(api["paths"].items()):
        for method in METHODS:
            if method in item:
                yield method, path, item[method]


def listed(api: dict[str, Any]) -> str:
    """`METHOD PATH ?QUERY… < BODY > STATUS ANSWER, …`, a line for each operation."""
    return "".join(f"{_line(*each)}\n" for each in operations(api))


def _line(method: str, path: str, operation: dict[str, Any]) -> str:
    asked = [
        f"{'?' if each['in'] == 'query' else each['in'] + ':'}{each['name']}"
        for each in operation.get("parameters", ())
        if each["in"] != "path"
    ]
    body = _names(operation.get("requestBody", {}).get("content", {}))
    answers = [
        f"{status} {_names(answer.get('content', {}))}".rstrip()
        for status, answer in operation["responses"].items()
        if status.startswith("2")
    ]
    words = [method.upper(), path, *asked, *(("<", body) if body else ()), ">", ", ".join(answers)]
    return " ".join(words)


def _names(content: dict[str, Any]) -> str:
    """Names of schemas, or the media types of what has none."""
    schemas = {kind: media.get("schema", {}) for kind, media in content.items()}
    return " | ".join(
        schema.get("$ref", "").rpartition("/")[2] or schema.get("title") or kind
        for kind, schema in schemas.items()
    )


def main() -> None:
    text = document()
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text, encoding="utf-8")
    LIST.write_text(listed(json.loads(text)), encoding="utf-8")


if __name__ == "__main__":
    main()
