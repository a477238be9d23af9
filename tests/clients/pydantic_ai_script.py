"""pydantic-ai with a typed output, by its defaults: it forces the call of a function."""

import json
import os
from typing import Literal

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.settings import ModelSettings


class Sum(BaseModel):
    total: Literal[3, 9]


def main() -> dict[str, object]:
    agent = Agent(
        f"openai-chat:{os.environ['TUNERY_MODEL']}",
        output_type=Sum,
        model_settings=ModelSettings(max_tokens=64),
    )
    return {"answer": agent.run_sync("What is 3 plus 6?").output.total}


if __name__ == "__main__":
    print(json.dumps(main()))
