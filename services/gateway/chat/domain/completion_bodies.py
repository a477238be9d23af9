"""Bodies of completions, responses and embeddings. What is not supported is refused by its name."""

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, StringConstraints
from pydantic_core import PydanticCustomError

from services.gateway.chat.domain.bodies import (
    FUNCTION_NAME,
    MESSAGES_MAX,
    TOOLS_MAX,
    FunctionBody,
    Ignored,
    NoEffect,
    SamplingFields,
    Text,
    Tokens,
    ToolChoice,
    ToolUse,
    Unsupported,
    answer_format,
    joined,
    only,
    tool_use,
)
from services.gateway.web.domain.bodies import Body, Id, Metadata
from tunery.work.engine import Sampling

COMPLETION_TOKENS: Final = 16  # without max_tokens, as in OpenAI's API
PROMPTS_MAX: Final = 128
INPUTS_MAX: Final = 2_048  # as OpenAI
COMPLETION_LOGPROBS_MAX: Final = 5  # as in OpenAI's API
PART_TYPES: Final = ("input_text", "output_text", "text")


def _prompts(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _inputs(value: Any) -> Any:
    """A list of texts. Raises PydanticCustomError for token ids, which are of another model."""
    texts = _prompts(value)
    if isinstance(texts, list) and texts and not isinstance(texts[0], str):
        message = "must be text, not tokens. LangChain: check_embedding_ctx_length=False"
        raise PydanticCustomError("text_only", message)
    return texts


def _texts(value: Any) -> Any:
    """The text of a content in parts. Raises PydanticCustomError for a part that is no text."""
    return joined(value, PART_TYPES)


def _items(value: Any) -> Any:
    """A text as a message; items without a type are messages."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    if not isinstance(value, list) or len(value) > MESSAGES_MAX:
        return value
    return [
        {"type": "message", **item} if isinstance(item, dict) and not item.get("type") else item
        for item in value
    ]


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
    """A text that the model continues with, as it is: no chat template is used. Of a list of texts,
    each is continued by itself: its first choice has its number, times `n`.
    """

    prompt: Annotated[
        list[Text],
        Field(min_length=1, max_length=PROMPTS_MAX, fail_fast=True),
        BeforeValidator(_prompts, json_schema_input_type=str | list[str]),
    ]
    max_tokens: Tokens | None = None
    logprobs: Annotated[StrictInt, Field(ge=0, le=COMPLETION_LOGPROBS_MAX)] | None = None
    best_of: Annotated[None, BeforeValidator(only(1), json_schema_input_type=int)] = None
    echo: Annotated[None, BeforeValidator(only(False), json_schema_input_type=bool)] = None
    suffix: Annotated[None, BeforeValidator(only(""), json_schema_input_type=str)] = None
    logit_bias: Unsupported = None


class EmbeddingRequest(Body):
    """Texts, each of which becomes a vector."""

    model: Id
    input: Annotated[
        list[Annotated[str, StringConstraints(strict=True, min_length=1)]],
        Field(min_length=1, max_length=INPUTS_MAX, fail_fast=True),
        BeforeValidator(_inputs, json_schema_input_type=str | list[str]),
    ]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Unsupported = None
    user: Ignored = None


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


class InputCall(Body):
    """A call of a function that an earlier response had."""

    type: Literal["function_call"]
    call_id: Annotated[str, Field(max_length=128)]
    name: Annotated[str, StringConstraints(strict=True, pattern=FUNCTION_NAME)]
    arguments: Text
    id: Ignored = None
    status: Ignored = None


class InputCallOutput(Body):
    """The result of a function call."""

    type: Literal["function_call_output"]
    call_id: Annotated[str, Field(max_length=128)]
    output: Annotated[
        Text, BeforeValidator(_texts, json_schema_input_type=str | list[dict[str, Any]])
    ]
    id: Ignored = None
    status: Ignored = None


InputItem = Annotated[InputMessage | InputCall | InputCallOutput, Field(discriminator="type")]


class ResponseTool(FunctionBody):
    """A function that a response may call. `strict`: as in chat completions."""

    type: Literal["function"]


class ResponseRequest(Body):
    """A question in the form of OpenAI's Responses API. Nothing is stored."""

    model: Id
    input: Annotated[
        list[InputItem],
        Field(min_length=1, max_length=MESSAGES_MAX),
        BeforeValidator(_items, json_schema_input_type=str | list[InputItem]),
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
    parallel_tool_calls: StrictBool | None = None  # false: the first call of a response alone
    previous_response_id: Unsupported = None
    prompt: Unsupported = None
    reasoning: NoEffect = None
    stream_options: Unsupported = None
    tool_choice: ToolChoice = None
    tools: Annotated[list[ResponseTool], Field(max_length=TOOLS_MAX)] | None = None
    top_logprobs: Unsupported = None

    def sampling(self) -> Sampling:
        """How tokens are chosen; what the request leaves out is as in OpenAI's API."""
        return Sampling(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            tokens_max=self.max_output_tokens,
        )

    def tool_use(self) -> ToolUse:
        """The tools that a response may call. Raises ApiError 400."""
        return tool_use(self.tools or (), self.tool_choice)

    def messages(self) -> tuple[dict[str, Any], ...]:
        """The conversation as chat templates know it, instructions first."""
        said: list[dict[str, Any]] = []
        if self.instructions:
            said.append({"role": "system", "content": self.instructions})
        for item in self.input:
            match item:
                case InputMessage():
                    role = "system" if item.role == "developer" else item.role
                    said.append({"role": role, "content": item.content})
                case InputCallOutput():
                    result = {"tool_call_id": item.call_id, "content": item.output}
                    said.append({"role": "tool", **result})
                case InputCall():
                    function = {"name": item.name, "arguments": item.arguments}
                    call = {"id": item.call_id, "type": "function", "function": function}
                    if not said or said[-1]["role"] != "assistant":
                        said.append({"role": "assistant", "content": ""})
                    said[-1].setdefault("tool_calls", []).append(call)
        return tuple(said)
