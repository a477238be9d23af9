"""The rules of tools, tool calls and tool results, and which result belongs to which call."""

from typing import Any, Final

import msgspec
from msgspec import Struct

from tunery.data.dialects.parsing import Object, json_type
from tunery.data.findings.finding import Note, excerpt

NAMELESS: Final = "\N{REPLACEMENT CHARACTER}"  # prefix of the number of a call without an id
FUNCTION_CALL: Final = "function_call"  # OpenAI's older form: one call of a message, without id
CALL_IDS_MAX: Final = 256  # calls of one message
_decode: Final = msgspec.json.Decoder().decode


class ToolDefinitions(Struct, frozen=True):
    """The tools that a row defines."""

    # OpenAI function tools, as a chat template reads them; None without tools
    tools: list[Any] | None = None
    names: frozenset[str] | None = None  # the names of their functions; None without tools


def check_row(value: Object, notes: list[Note]) -> ToolDefinitions:
    """Read the tools of a row under `tools`, or under `functions`, OpenAI's older name of them."""
    functions = value.get("functions")
    if value.get("tools") or not functions:
        return check_tools(value.get("tools"), "/tools", notes)
    if isinstance(functions, list):  # the older form need not have parameters
        functions = [{"parameters": {}, **f} if isinstance(f, dict) else f for f in functions]
    return check_tools(functions, "/functions", notes)


def check_tools(tools: object, at: str, notes: list[Note]) -> ToolDefinitions:
    """Read the tools of a row: OpenAI tool objects, bare functions, or either as JSON text.

    `at` is the JSON pointer of the tools.
    """
    if isinstance(tools, str) and (text := tools.strip()):
        try:
            tools = _decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            notes.append(Note("bad_tools", at, str(error)[:200], excerpt(text)))
            return ToolDefinitions()
    if not tools:
        return ToolDefinitions()
    if not isinstance(tools, list):
        notes.append(Note("bad_tools", at, f"it is {json_type(tools)}"))
        return ToolDefinitions()
    names: set[str] = set()
    wrapped: list[Any] = []
    for index, tool in enumerate(tools):
        match tool:
            case {"type": "function", "function": {"name": str(name)} as function} if name:
                pointer = f"{at}/{index}/function/parameters"
            case {"name": str(name), "parameters": _} as function if name:
                pointer = f"{at}/{index}/parameters"
            case _:
                notes.append(Note("bad_tools", f"{at}/{index}", "no function with a name"))
                continue
        names.add(name)
        wrapped.append({"type": "function", "function": function})
        if not isinstance(function.get("parameters") or {}, dict):
            notes.append(Note("bad_tools", pointer, "parameters are not an object"))
    return ToolDefinitions(wrapped, frozenset(names))


def check_calls(
    messages: list[Object], defined: frozenset[str] | None, pointers: list[str], notes: list[Note]
) -> None:
    """Note malformed calls, undefined tools, and results that do not match the calls before them.

    `defined` are the names of the row's tools, `pointers` the JSON pointers of the messages.
    Results without an id belong to the calls in their order.
    """
    waiting: dict[str, None] = {}  # ids of calls without a result so far, in order
    called = False  # the previous message was a call or a result
    undefined = False
    for message, at in zip(messages, pointers, strict=True):
        if message["role"] == "tool":
            _result(message, waiting, called, at, notes)
            continue
        if waiting:
            detail = excerpt(", ".join(sorted(waiting)))
            notes.append(Note("missing_tool_result", at, detail))
        waiting, called = {}, False
        if "tool_calls" in message:
            waiting = _calls(message, defined, at, notes)
            called = bool(waiting)
            undefined |= called and defined is None
    if undefined:
        notes.append(Note("tools_undefined", "/tools"))


def read_function_call(message: Object, at: str, notes: list[Note]) -> Object:
    """A message with its `function_call` as a tool call without an id.

    `function_call` stays in the message, so that faults are noted where the row has it.
    """
    if message.get("tool_calls"):
        detail = "the message has tool_calls too"
        notes.append(Note("bad_tool_calls", f"{at}/{FUNCTION_CALL}", detail))
    call = {"type": "function", "function": message[FUNCTION_CALL]}
    return {**message, "tool_calls": [call]}


def decode_arguments(message: Object) -> Object:
    """Decode the arguments of tool calls from JSON text to objects, as chat templates expect."""
    if "tool_calls" not in message:
        return message
    calls = []
    for call in message["tool_calls"]:
        function = dict(call["function"])
        if isinstance(function.get("arguments"), str):
            function["arguments"] = _decode(function["arguments"] or "{}")
        calls.append({**call, "function": function})
    return {**message, "tool_calls": calls}


def _calls(
    message: Object, defined: frozenset[str] | None, at: str, notes: list[Note]
) -> dict[str, None]:
    """Note faults of the tool calls of one message, and return their ids in order."""
    older = FUNCTION_CALL in message
    at = f"{at}/{FUNCTION_CALL if older else 'tool_calls'}"
    calls = message["tool_calls"]
    if not isinstance(calls, list) or message["role"] != "assistant":
        detail = "only the assistant calls tools" if isinstance(calls, list) else json_type(calls)
        notes.append(Note("bad_tool_calls", at, detail))
        return {}
    ids: dict[str, None] = {}
    for index, call in enumerate(calls):
        call_at = at if older else f"{at}/{index}"
        function_at = at if older else f"{at}/{index}/function"
        match call:
            case {"function": {"name": str(name)} as function} if name and _has_id(call):
                call_id = call.get("id") or f"{NAMELESS}{index}"
                if call_id in ids:
                    notes.append(Note("bad_tool_calls", f"{call_at}/id", "a repeated id"))
                ids[call_id] = None
                _arguments(function, function_at, notes)
                if defined is not None and name not in defined:
                    notes.append(Note("unknown_tool", f"{function_at}/name", repr(excerpt(name))))
            case _:
                notes.append(Note("bad_tool_calls", call_at))
    if len(ids) > CALL_IDS_MAX:
        notes.append(Note("bad_tool_calls", at, f"more than {CALL_IDS_MAX} calls"))
    return ids


def _arguments(function: Object, at: str, notes: list[Note]) -> None:
    arguments: Any = function.get("arguments", "")
    if isinstance(arguments, dict):
        return
    at = f"{at}/arguments"
    if not isinstance(arguments, str):
        notes.append(Note("tool_arguments_invalid", at, f"it is {json_type(arguments)}"))
        return
    try:
        value = _decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        detail = str(error)[:200]
        notes.append(Note("tool_arguments_invalid", at, detail, excerpt(arguments)))
        return
    if not isinstance(value, dict):
        detail = f"it holds {json_type(value)}"
        notes.append(Note("tool_arguments_invalid", at, detail, excerpt(arguments)))


def _has_id(call: Object) -> bool:
    return isinstance(call.get("id") or "", str)


def _result(
    message: Object, waiting: dict[str, None], called: bool, at: str, notes: list[Note]
) -> None:
    if not called:
        notes.append(Note("orphan_tool_message", at))
        return
    call_id = message.get("tool_call_id")
    if isinstance(call_id, str) and call_id in waiting:
        del waiting[call_id]
    elif call_id is None and (len(waiting) == 1 or next(iter(waiting), "").startswith(NAMELESS)):
        del waiting[next(iter(waiting))]
    else:
        detail = repr(excerpt(call_id)) if isinstance(call_id, str) else json_type(call_id)
        notes.append(Note("tool_call_id_mismatch", f"{at}/tool_call_id", detail))
        waiting.pop(
            next(iter(waiting), ""), None
        )  # it belongs to some call: do not report a missing result too
