"""Tools, tool calls and their results: a shape, and who answers whom."""

from typing import Any, Final

import msgspec

from tunery.data.findings import Note, excerpt
from tunery.data.parsing import Object, kind

CALL_IDS_MAX: Final = 256  # open calls of one message
_decode: Final = msgspec.json.Decoder().decode


def check_tools(tools: object, notes: list[Note]) -> frozenset[str] | None:
    """Names of the functions a row defines; None where it defines none."""
    if tools is None or tools == []:
        return None
    if not isinstance(tools, list):
        notes.append(Note("bad_tools", "/tools", f"it is {kind(tools)}"))
        return frozenset()
    names: set[str] = set()
    for index, tool in enumerate(tools):
        match tool:
            case {"type": "function", "function": {"name": str(name)} as function} if name:
                names.add(name)
                if not isinstance(function.get("parameters", {}), dict):
                    at = f"/tools/{index}/function/parameters"
                    notes.append(Note("bad_tools", at, "parameters are not an object"))
            case _:
                notes.append(Note("bad_tools", f"/tools/{index}", "no function with a name"))
    return frozenset(names)


def check_calls(
    messages: list[Object], offered: frozenset[str] | None, where: str, notes: list[Note]
) -> None:
    """Note malformed calls, unknown tools, and results that do not fit the calls before them."""
    waiting: set[str] = set()  # ids of calls not answered yet
    called = False  # the turn before was a call or a result
    undefined = False
    for index, message in enumerate(messages):
        at = f"/{where}/{index}"
        if message["role"] == "tool":
            _result(message, waiting, called, at, notes)
            continue
        if waiting:
            detail = excerpt(", ".join(sorted(waiting)))
            notes.append(Note("missing_tool_result", at, detail))
        waiting, called = set(), False
        if "tool_calls" in message:
            waiting = _calls(message, offered, at, notes)
            called = bool(waiting)
            undefined |= called and offered is None
    if undefined:
        notes.append(Note("tools_undefined", "/tools"))


def decoded(message: Object) -> Object:
    """The message as chat templates want it: call arguments as objects, not as JSON in a string."""
    if "tool_calls" not in message:
        return message
    calls = []
    for call in message["tool_calls"]:
        function = dict(call["function"])
        if isinstance(function.get("arguments"), str):
            function["arguments"] = _decode(function["arguments"] or "{}")
        calls.append({**call, "function": function})
    return {**message, "tool_calls": calls}


def _calls(message: Object, offered: frozenset[str] | None, at: str, notes: list[Note]) -> set[str]:
    at = f"{at}/tool_calls"
    calls = message["tool_calls"]
    if not isinstance(calls, list) or message["role"] != "assistant":
        detail = "only the assistant calls tools" if isinstance(calls, list) else kind(calls)
        notes.append(Note("bad_tool_calls", at, detail))
        return set()
    ids: set[str] = set()
    for index, call in enumerate(calls):
        match call:
            case {"id": str(call_id), "function": {"name": str(name)} as function}:
                if call_id in ids:
                    notes.append(Note("bad_tool_calls", f"{at}/{index}/id", "a repeated id"))
                ids.add(call_id)
                _arguments(function, f"{at}/{index}/function", notes)
                if offered is not None and name not in offered:
                    name_at = f"{at}/{index}/function/name"
                    notes.append(Note("unknown_tool", name_at, repr(excerpt(name))))
            case _:
                detail = "no id" if isinstance(call, dict) and "id" not in call else ""
                notes.append(Note("bad_tool_calls", f"{at}/{index}", detail))
    if len(ids) > CALL_IDS_MAX:
        notes.append(Note("bad_tool_calls", at, f"more than {CALL_IDS_MAX} calls"))
    return ids


def _arguments(function: Object, at: str, notes: list[Note]) -> None:
    arguments: Any = function.get("arguments", "")
    if isinstance(arguments, dict):
        return
    at = f"{at}/arguments"
    if not isinstance(arguments, str):
        notes.append(Note("tool_arguments_invalid", at, f"it is {kind(arguments)}"))
        return
    try:
        value = _decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        detail = str(error)[:200]
        notes.append(Note("tool_arguments_invalid", at, detail, excerpt(arguments)))
        return
    if not isinstance(value, dict):
        detail = f"it holds {kind(value)}"
        notes.append(Note("tool_arguments_invalid", at, detail, excerpt(arguments)))


def _result(message: Object, waiting: set[str], called: bool, at: str, notes: list[Note]) -> None:
    if not called:
        notes.append(Note("orphan_tool_message", at))
        return
    call_id = message.get("tool_call_id")
    if isinstance(call_id, str) and call_id in waiting:
        waiting.discard(call_id)
    elif call_id is None and len(waiting) == 1:
        waiting.clear()
    else:
        detail = repr(excerpt(call_id)) if isinstance(call_id, str) else kind(call_id)
        notes.append(Note("tool_call_id_mismatch", f"{at}/tool_call_id", detail))
