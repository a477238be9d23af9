"""instructor in its default mode, which forces the call of a function: prints JSON."""

import json
import os
from typing import Literal

import instructor
from openai import OpenAI
from pydantic import BaseModel


class Sum(BaseModel):
    """A sum of two numbers."""

    total: Literal[3, 9]


def main() -> dict[str, object]:
    client = instructor.from_openai(OpenAI())
    extracted = client.chat.completions.create(
        model=os.environ["TUNERY_MODEL"],
        response_model=Sum,
        messages=[{"role": "user", "content": "What is 3 plus 6?"}],
        max_tokens=64,
    )
    return {"answer": extracted.total}


if __name__ == "__main__":
    print(json.dumps(main()))
