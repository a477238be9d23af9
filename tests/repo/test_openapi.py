"""The document that clients read is the one in the repository, so that reviews see its changes."""

import json
import re
from collections import Counter
from functools import cache
from typing import Any

from tests.repo.openapi import FILE, document

METHODS = {"get", "post", "put", "patch", "delete"}


@cache
def written() -> str:
    """Made once for all tests: it takes most of a second."""
    return document()


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    paths = json.loads(written())["paths"]
    return [
        (method, path, operation)
        for path, item in paths.items()
        for method, operation in item.items()
        if method in METHODS
    ]


def test_the_document_is_that_of_the_routes() -> None:
    assert FILE.read_text(encoding="utf-8") == written(), "python -m tests.repo.openapi"


def test_operations_have_names_of_their_own() -> None:
    names = Counter(operation["operationId"] for _, _, operation in operations())
    assert [name for name, count in names.items() if count > 1] == []


def test_errors_are_documented_as_they_are_and_never_as_422() -> None:
    for method, path, operation in operations():
        answers = operation["responses"]
        assert {"4XX", "5XX"} <= answers.keys(), (method, path)
        assert "422" not in answers, (method, path)


def test_every_name_in_a_path_is_a_documented_parameter() -> None:
    for method, path, operation in operations():
        names = set(re.findall("{([^}]+)}", path))
        documented = {
            parameter["name"]
            for parameter in operation.get("parameters", [])
            if parameter["in"] == "path"
        }
        assert names == documented, (method, path)
