"""LangChain: `bind_tools` with a forced call, `with_structured_output` in all its methods."""

import json
import os
from typing import Literal

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

ASKED = "What is 3 plus 6? Answer in JSON."


class Sum(BaseModel):
    """A sum."""

    total: Literal[3, 9]


@tool  # type: ignore[untyped-decorator]  # of a library without types here
def add(first: Literal[3], second: Literal[6]) -> int:
    """Add two numbers."""
    return first + second


def main() -> dict[str, object]:
    model = ChatOpenAI(model=os.environ["TUNERY_MODEL"], max_tokens=64)
    called = model.bind_tools([add], tool_choice="any", strict=True).invoke(ASKED)
    (call,) = called.tool_calls
    extracted = [
        model.with_structured_output(Sum, method=method).invoke(ASKED)
        for method in ("function_calling", "json_schema")
    ]
    model.bind_tools([add]).invoke(ASKED)  # the model decides
    return {"answer": [add.invoke(call["args"]), *(each.total for each in extracted)]}


if __name__ == "__main__":
    print(json.dumps(main()))
