"""The document that clients read: reviews see each of its operations change."""

import json
import re
from collections import Counter
from functools import cache
from typing import Any

from tests.repo import openapi


@cache
def written() -> dict[str, Any]:
    """Made once for all tests: it takes most of a second."""
    api: dict[str, Any] = json.loads(openapi.document())
    return api


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return list(openapi.operations(written()))


def test_the_list_is_that_of_the_routes() -> None:
    listed = openapi.listed(written())
    assert openapi.LIST.read_text(encoding="utf-8") == listed, "python -m tests.repo.openapi"


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
