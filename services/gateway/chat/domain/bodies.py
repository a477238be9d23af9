"""Bodies of questions. What is not supported is refused by its name, unless it asks for nothing."""

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from msgspec.structs import replace
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictInt,
    StringConstraints,
    model_validator,
)
from pydantic_core import PydanticCustomError

from services.gateway.web.domain.bodies import Body, Id, Metadata
from services.gateway.web.domain.errors import invalid
from tunery.work.engine import Sampling

MESSAGES_MAX: Final = 2_048
CHOICES_MAX: Final = 8
STOPS_MAX: Final = 4  # as OpenAI
STOP_CHARACTERS_MAX: Final = 256
TOKENS_MAX: Final = 1_000_000
SEED_MAX: Final = 2**63 - 1
LOGPROBS_MAX: Final = 20  # as OpenAI
SCHEMA_DEPTH_MAX: Final = 64  # levels of JSON: the engine reads a schema by recursion
SCHEMA_BYTES_MAX: Final = 32 * 1024
SCHEMA_PROPERTIES_MAX: Final = 256  # of one object
SCHEMA_ITEMS_MAX: Final = 100_000  # of lists within lists: the engine writes them out
OTHER_PARTS: Final = ("image_url", "input_image", "input_audio", "file", "input_file")
TOOLS_MAX: Final = 128  # as OpenAI
FUNCTION_NAME: Final = "^[A-Za-z0-9_-]{1,64}$"  # as OpenAI

StopText = Annotated[
    str, StringConstraints(strict=True, min_length=1, max_length=STOP_CHARACTERS_MAX)
]
Text = Annotated[str, StringConstraints(strict=True)]
Tokens = Annotated[StrictInt, Field(ge=1, le=TOKENS_MAX)]
Penalty = Annotated[float, Field(ge=-2, le=2)]


def _listed(value: Any) -> Any:
    if isinstance(value, list) and len(value) > STOPS_MAX:
        raise PydanticCustomError(
            "array_above_max_length",
            f"array too long. Expected an array with maximum length {STOPS_MAX}, but got an array "
            f"with length {len(value)} instead",
        )
    return [value] if isinstance(value, str) else value


def joined(value: Any, types: Sequence[str] = ("text",)) -> Any:
    """The text of a content in parts. Raises PydanticCustomError for a part that is no text."""
    if not isinstance(value, list):
        return value
    for part in value:
        match part:
            case {"type": str(kind), "text": str()} if kind in types:
                pass
            case {"type": str(kind)} if kind in OTHER_PARTS:
                message = f"Invalid content type. {kind} is only supported by certain models"
                raise PydanticCustomError("text_only", message)
            case _:
                raise PydanticCustomError("text_only", "must be text, or parts of type text")
    return "".join(part["text"] for part in value)


def only(*values: Any) -> Callable[[Any], Any]:
    """Return a validator that accepts null and `values`, which have no effect, and refuses all
    else.
    """

    def check(value: Any) -> Any:
        if value is None or value in values:
            return None
        raise PydanticCustomError("unsupported", "is not supported; leave it out")

    return check


def small_schema(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """Raises PydanticCustomError for a schema that is too large, too deep, or refers to itself in
    a way that no JSON fits.
    """
    if value is None:
        return None
    if _depth(value) > SCHEMA_DEPTH_MAX or len(json.dumps(value)) > SCHEMA_BYTES_MAX:
        raise PydanticCustomError(
            "schema_too_large", f"may have {SCHEMA_DEPTH_MAX} levels and {SCHEMA_BYTES_MAX} bytes"
        )
    left = [(value, 1)]  # parts of the schema, and in how many items of lists each is
    while left:
        part, items = left.pop()
        bounds = (part.get(key) for key in ("minItems", "maxItems"))
        items *= max((n for n in bounds if isinstance(n, int) and n > 0), default=1)
        properties = part.get("properties")
        if isinstance(properties, dict) and len(properties) > SCHEMA_PROPERTIES_MAX:
            message = f"an object may have {SCHEMA_PROPERTIES_MAX} properties"
            raise PydanticCustomError("schema_too_large", message)
        if items > SCHEMA_ITEMS_MAX:
            message = f"lists within lists may have {SCHEMA_ITEMS_MAX} items (maxItems)"
            raise PydanticCustomError("schema_too_large", message)
        if _is_endless(part, value):
            message = "must not refer to itself without an object or a list between"
            raise PydanticCustomError("schema_recursive", message)
        for inner in part.values():
            nested = inner if isinstance(inner, list) else [inner]
            left += [(each, items) for each in nested if isinstance(each, dict)]
    return value


def _is_endless(part: dict[str, Any], schema: dict[str, Any]) -> bool:
    """Return whether a part of a schema is, by references and choices alone, a part of itself."""
    seen, left = set[int](), [part]
    while left:
        here = left.pop()
        alternatives = [here.get(key) for key in ("anyOf", "oneOf", "allOf")]
        direct = [each for many in alternatives if isinstance(many, list) for each in many]
        direct.append(_referred(here.get("$ref"), schema))
        for inner in direct:
            if inner is part:
                return True
            if isinstance(inner, dict) and id(inner) not in seen:
                seen.add(id(inner))
                left.append(inner)
    return False


def _referred(reference: Any, schema: dict[str, Any]) -> Any:
    """The part of a schema that a `$ref` names; None: no part of it."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    part: Any = schema
    for name in reference[1:].split("/")[1:]:
        part = part.get(name) if isinstance(part, dict) else None
    return part


def answer_format(value: Any) -> Any:
    """A form of answers, None for text. Raises PydanticCustomError."""
    match value:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "json_object"}
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return {"type": "json_schema", "json_schema": {"schema": small_schema(schema)}}
        case _:
            raise PydanticCustomError(
                "response_format",
                "must have the type text, json_object, or json_schema with its schema",
            )


def chosen_tool(value: Any) -> Any:
    """A choice of tools; of a function that is named, its name. Raises PydanticCustomError."""
    match value:
        case None | "none" | "auto" | "required":
            return value
        case {"type": "function", "function": {"name": str(name)}}:
            return {"name": name}
        case {"type": "function", "name": str(name)}:  # of /v1/responses
            return {"name": name}
        case _:
            message = "must be none, auto, required, or a function by its name"
            raise PydanticCustomError("tool_choice", message)


def _depth(value: Any) -> int:
    """Levels of a JSON value, as far as more than SCHEMA_DEPTH_MAX of them."""
    levels, level = 0, [value]
    while level and levels <= SCHEMA_DEPTH_MAX:
        levels += 1
        nested = [part for part in level if isinstance(part, dict | list)]
        level = [
            inner
            for part in nested
            for inner in (part.values() if isinstance(part, dict) else part)
        ]
    return levels


class TextPart(Body):
    type: Literal["text"]
    text: str


Content = Annotated[Text, BeforeValidator(joined, json_schema_input_type=str | list[TextPart])]
Unsupported = Annotated[None, BeforeValidator(only(False, [], {}), json_schema_input_type=Any)]
Ignored = Annotated[str | None, Field(max_length=512)]
WITHOUT_EFFECT: Final = "It changes nothing here; the header x-tunery-ignored names it."
#: a field of OpenAI's API that has no meaning here
NoEffect = Annotated[Any, Field(description=WITHOUT_EFFECT)]


ToolChoice = Annotated[
    Literal["none", "auto", "required"] | dict[str, str] | None,
    BeforeValidator(
        chosen_tool,
        json_schema_input_type=Literal["none", "auto", "required"] | dict[str, Any] | None,
    ),
]


class CalledFunctionBody(Body):
    name: Annotated[str, StringConstraints(strict=True, pattern=FUNCTION_NAME)]
    arguments: Text


class MessageToolCallBody(Body):
    id: Annotated[str, Field(max_length=128)]
    type: Literal["function"] = "function"
    function: CalledFunctionBody


class FunctionBody(Body):
    """A function that an answer may call. `strict`: its arguments are held to their schema, as
    those of a call that is forced always are.
    """

    name: Annotated[str, StringConstraints(strict=True, pattern=FUNCTION_NAME)]
    description: Text | None = None
    parameters: Annotated[dict[str, Any] | None, AfterValidator(small_schema)] = None
    strict: StrictBool | None = None


class ToolBody(Body):
    type: Literal["function"]
    function: FunctionBody


class ChatMessage(Body):
    """One message. The fields after `tool_calls` are null in answers that are sent back.

    content: null only beside `tool_calls`. tool_call_id: the call that a message of the role `tool`
    is the result of.
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: Ignored = None
    tool_call_id: Ignored = None
    # each of 2,048 messages names one bad call: all of them take seconds to describe
    tool_calls: (
        Annotated[list[MessageToolCallBody], Field(max_length=TOOLS_MAX, fail_fast=True)] | None
    ) = None
    refusal: Unsupported = None
    annotations: Unsupported = None
    audio: Unsupported = None
    function_call: Unsupported = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            raise PydanticCustomError("content", "content must be text, or parts of type text")
        if self.tool_calls and self.role != "assistant":
            raise PydanticCustomError("tool_calls", "only the assistant calls tools")
        if (self.role == "tool") != (self.tool_call_id is not None):
            raise PydanticCustomError("tool_call_id", "a message of a tool has its tool_call_id")
        return self


class StreamOptions(Body):
    include_usage: StrictBool = False
    include_obfuscation: StrictBool = False


class SamplingFields(Body):
    """Fields that all questions share, except for the question itself."""

    model: Id
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    n: Annotated[StrictInt, Field(ge=1, le=CHOICES_MAX)] | None = None
    stop: (
        Annotated[
            list[StopText],
            Field(max_length=STOPS_MAX),
            BeforeValidator(_listed, json_schema_input_type=str | list[str]),
        ]
        | None
    ) = None
    seed: Annotated[StrictInt, Field(ge=-SEED_MAX, le=SEED_MAX)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    user: Ignored = None

    @property
    def with_usage(self) -> bool:
        """Return whether the stream ends with a frame of its usage."""
        return self.stream_options is not None and self.stream_options.include_usage


class ChatRequest(SamplingFields):
    """A question. `safety_identifier` up to `service_tier` change nothing."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MESSAGES_MAX)]
    max_completion_tokens: Tokens | None = None
    max_tokens: Tokens | None = None
    safety_identifier: Ignored = None
    prompt_cache_key: Ignored = None
    metadata: Metadata | None = None
    store: NoEffect = None
    service_tier: Literal["auto", "default"] | None = None
    response_format: Annotated[
        dict[str, Any] | None,
        BeforeValidator(answer_format, json_schema_input_type=dict[str, Any]),
    ] = None
    logprobs: StrictBool | None = None
    top_logprobs: Annotated[StrictInt, Field(ge=0, le=LOGPROBS_MAX)] | None = None
    modalities: Annotated[
        None, BeforeValidator(only(["text"]), json_schema_input_type=list[str])
    ] = None
    audio: Unsupported = None
    function_call: Unsupported = None
    functions: Unsupported = None
    logit_bias: Unsupported = None
    parallel_tool_calls: StrictBool | None = None  # false: the first call of an answer alone
    prediction: NoEffect = None
    reasoning_effort: NoEffect = None
    tool_choice: ToolChoice = None
    tools: Annotated[list[ToolBody], Field(max_length=TOOLS_MAX)] | None = None
    verbosity: NoEffect = None
    web_search_options: Unsupported = None


def ignored(body: Body) -> list[str]:
    """The fields of a request that ask for something, and have no effect."""
    return [
        name
        for name, field in type(body).model_fields.items()
        if field.description == WITHOUT_EFFECT and getattr(body, name) not in (None, False)
    ]


def sampling(body: SamplingFields) -> Sampling:
    """How tokens are chosen; what the request leaves out is as in OpenAI's API."""
    return Sampling(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        seed=body.seed,
        stop=tuple(body.stop or ()),
    )


def chat_sampling(body: ChatRequest) -> Sampling:
    """Raises ApiError 400 for `top_logprobs` without `logprobs`."""
    if body.top_logprobs is not None and not body.logprobs:
        raise invalid("top_logprobs: needs logprobs to be true", "top_logprobs")
    return replace(
        sampling(body),
        tokens_max=body.max_completion_tokens or body.max_tokens,
        top_logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )


def messages(body: ChatRequest) -> tuple[dict[str, Any], ...]:
    """The conversation as chat templates know it."""
    return tuple(_message(message) for message in body.messages)


def _message(message: ChatMessage) -> dict[str, Any]:
    role = "system" if message.role == "developer" else message.role
    known: dict[str, Any] = {"role": role, "content": message.content or ""}
    if message.tool_calls:
        known["tool_calls"] = [call.model_dump() for call in message.tool_calls]
    if message.role == "tool":
        known["tool_call_id"] = message.tool_call_id
        known |= {} if message.name is None else {"name": message.name}
    return known


class ToolUse(NamedTuple):
    """The functions that an answer may call, as a question has them."""

    tools: tuple[dict[str, Any], ...] = ()
    forced: tuple[str, ...] = ()
    strict: tuple[str, ...] = ()


def tool_use(functions: Sequence[FunctionBody], choice: str | dict[str, str] | None) -> ToolUse:
    """Raises ApiError 400 for the choice of a function that there is not, in OpenAI's words."""
    names = tuple(function.name for function in functions)
    if choice in (None, "auto", "none"):
        forced: tuple[str, ...] = ()
    elif not functions:
        message = "'tool_choice' is only allowed when 'tools' are specified."
        raise invalid(message, "tool_choice")
    elif isinstance(choice, dict):
        forced = (choice["name"],)
        if choice["name"] not in names:
            message = f"Tool choice '{choice['name']}' not found in 'tools' parameter."
            raise invalid(message, "tool_choice")
    else:
        forced = names
    if choice == "none":
        return ToolUse()
    tools = tuple(
        {"type": "function", "function": f.model_dump(exclude_none=True, exclude={"strict"})}
        for f in functions
    )
    return ToolUse(tools, forced, tuple(f.name for f in functions if f.strict))


def chat_tools(body: ChatRequest) -> ToolUse:
    """The tools that an answer may call. Raises ApiError 400."""
    return tool_use([tool.function for tool in body.tools or ()], body.tool_choice)
