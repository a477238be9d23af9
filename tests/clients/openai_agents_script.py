"""OpenAI's Agents SDK: a function whose call is forced, by both APIs of models."""

import json
import os
from typing import Literal

from agents import (
    Agent,
    ModelSettings,
    Runner,
    function_tool,
    set_default_openai_api,
    set_tracing_disabled,
)

CALLS: list[tuple[int, int]] = []


@function_tool  # type: ignore[untyped-decorator]  # of a library without types here
def add(first: Literal[3], second: Literal[6]) -> int:
    """Add two numbers."""
    CALLS.append((first, second))
    return first + second


def main() -> dict[str, object]:
    set_tracing_disabled(True)
    agent = Agent(
        name="Sums",
        instructions="Add.",
        model=os.environ["TUNERY_MODEL"],
        tools=[add],
        tool_use_behavior="stop_on_first_tool",
        model_settings=ModelSettings(tool_choice="required", max_tokens=64),
    )
    for api in ("responses", "chat_completions"):
        set_default_openai_api(api)
        Runner.run_sync(agent, "What is 3 plus 6?")
    return {"answer": [first + second for first, second in CALLS]}


if __name__ == "__main__":
    print(json.dumps(main()))
