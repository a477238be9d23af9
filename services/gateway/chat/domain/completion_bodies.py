"""Bodies of `/v1/completions` and `/v1/responses`. What is not supported is refused by its name."""

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictInt
from pydantic_core import PydanticCustomError

from services.gateway.chat.domain.bodies import (
    MESSAGES_MAX,
    Ignored,
    NoEffect,
    SamplingFields,
    Text,
    Tokens,
    Unsupported,
    answer_format,
    only,
)
from services.gateway.web.domain.bodies import Body, Id, Metadata
from tunery.work.engine import Sampling

COMPLETION_TOKENS: Final = 16  # without max_tokens, as in OpenAI's API
COMPLETION_LOGPROBS_MAX: Final = 5  # as in OpenAI's API
PART_TYPES: Final = ("input_text", "output_text", "text")


def _prompt(value: Any) -> Any:
    if isinstance(value, list) and len(value) == 1:
        return value[0]
    return value


def _texts(value: Any) -> Any:
    """The text of a content in parts. Raises PydanticCustomError for a part that is no text."""
    if not isinstance(value, list):
        return value
    for part in value:
        is_text = isinstance(part, dict) and part.get("type") in PART_TYPES
        if not is_text or not isinstance(part.get("text"), str):
            raise PydanticCustomError("text_only", "must be text, or parts of text")
    return "".join(part["text"] for part in value)


def _messages(value: Any) -> Any:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


def _format(value: Any) -> Any:
    """The format of `text` as chat completions have it. Raises PydanticCustomError."""
    match value:
        case {"format": {"type": "json_schema", "schema": schema, **_rest}}:
            return answer_format({"type": "json_schema", "json_schema": {"schema": schema}})
        case {"format": form}:
            return answer_format(form)
        case None | dict():
            return None
        case _:
            return answer_format(value)


class CompletionRequest(SamplingFields):
    """One text that the model continues with, as it is: no chat template is used."""

    prompt: Annotated[Text, BeforeValidator(_prompt, json_schema_input_type=str | list[str])]
    max_tokens: Tokens | None = None
    logprobs: Annotated[StrictInt, Field(ge=0, le=COMPLETION_LOGPROBS_MAX)] | None = None
    best_of: Annotated[None, BeforeValidator(only(1), json_schema_input_type=int)] = None
    echo: Annotated[None, BeforeValidator(only(False), json_schema_input_type=bool)] = None
    suffix: Annotated[None, BeforeValidator(only(""), json_schema_input_type=str)] = None
    logit_bias: Unsupported = None


class InputMessage(Body):
    """A message of a conversation. `id` and `status` are those of outputs that are sent back."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[
        Text, BeforeValidator(_texts, json_schema_input_type=str | list[dict[str, Any]])
    ]
    id: Ignored = None
    status: Ignored = None
    phase: Ignored = None


class ResponseRequest(Body):
    """A question in the form of OpenAI's Responses API: text alone, and nothing is stored."""

    model: Id
    input: Annotated[
        list[InputMessage],
        Field(min_length=1, max_length=MESSAGES_MAX),
        BeforeValidator(_messages, json_schema_input_type=str | list[InputMessage]),
    ]
    instructions: Text | None = None
    max_output_tokens: Tokens | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    stream: StrictBool | None = None
    text: Annotated[
        dict[str, Any] | None, BeforeValidator(_format, json_schema_input_type=dict[str, Any])
    ] = None
    metadata: Metadata | None = None
    user: Ignored = None
    safety_identifier: Ignored = None
    prompt_cache_key: Ignored = None
    service_tier: Literal["auto", "default"] | None = None
    truncation: NoEffect = None
    store: NoEffect = None
    background: Annotated[None, BeforeValidator(only(False), json_schema_input_type=bool)] = None
    conversation: Unsupported = None
    include: Unsupported = None
    parallel_tool_calls: Annotated[
        None, BeforeValidator(only(True, False), json_schema_input_type=bool)
    ] = None
    previous_response_id: Unsupported = None
    prompt: Unsupported = None
    reasoning: NoEffect = None
    stream_options: Unsupported = None
    tool_choice: Annotated[
        None, BeforeValidator(only("auto", "none"), json_schema_input_type=str)
    ] = None
    tools: Unsupported = None
    top_logprobs: Unsupported = None

    def sampling(self) -> Sampling:
        """How tokens are chosen; what the request leaves out is as in OpenAI's API."""
        return Sampling(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            tokens_max=self.max_output_tokens,
        )

    def messages(self) -> tuple[dict[str, Any], ...]:
        """The conversation as chat templates know it, instructions first."""
        said = [{"role": "system", "content": self.instructions}] if self.instructions else []
        said += [
            {
                "role": "system" if message.role == "developer" else message.role,
                "content": message.content,
            }
            for message in self.input
        ]
        return tuple(said)
