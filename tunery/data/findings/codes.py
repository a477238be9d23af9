"""The catalogue of findings: stable codes, what each means, what to do. Messages may change."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding. `fix` is the hint shown beside it."""

    severity: Severity
    meaning: str
    fix: str


_ERRORS: Final[dict[str, tuple[str, str]]] = {
    # the file
    "empty_file": ("The file has no rows", "Upload a file with one example per line."),
    "header_only": ("The CSV file has a header and no rows", "Add rows below the header."),
    "too_few_rows": ("The file has too few rows", "Add examples; 100 good ones show effect."),
    "too_many_rows": (
        "The file has too many rows; reading stopped",
        "Split the file, or ask for a plan that allows more.",
    ),
    "all_rows_equal": ("All rows are the same", "Upload different examples."),
    "unsupported_format": (
        "The content is in no format that is read here",
        "Convert it to JSONL (one JSON object per line, UTF-8), CSV or Parquet.",
    ),
    "truncated_file": ("The file ends too early", "Upload it again; compare its size."),
    "damaged_file": ("The file is damaged", "Write it again, or upload it again."),
    "decompression_bomb": (
        "The file unpacks to far more than text does",
        "Upload it without compression.",
    ),
    "not_utf8": ("The file is not UTF-8 text", "Save it again as UTF-8."),
    "unknown_dialect": (
        "The row has none of the shapes that are read here",
        'Use {"messages": [...]} or {"prompt": ..., "completion": ...}.',
    ),
    "mixed_formats": (
        "The row has the keys of two formats",
        "Keep one, as `messages`, or `prompt` and `completion`.",
    ),
    "other_dialect": (
        "The row has another format than the first rows",
        "Use one format per file.",
    ),
    # one row as bytes
    "pretty_printed": (
        "The object is spread over several lines",
        "Write one object per line: jq -c . in.json > out.jsonl",
    ),
    "row_too_large": ("The row is larger than 8 MiB", "Shorten or split the example."),
    "invalid_utf8": ("The row is not valid UTF-8", "Save the file again as UTF-8."),
    "invalid_json": ("The line is not valid JSON", "Write the row with a JSON library."),
    "truncated_json": ("The JSON ends too early", "Complete the row, or remove it."),
    "trailing_comma": ("A comma with nothing after it", "Remove the last comma."),
    "python_repr": (
        "The line is Python's notation, not JSON",
        "Write rows with json.dumps, not str or repr.",
    ),
    "not_a_number": ("NaN and Infinity are not JSON", "Use null or a number."),
    "two_objects": ("More than one JSON value on the line", "Put each object on its own line."),
    "nested_too_deep": ("The row is nested deeper than 64 levels", "Flatten the row."),
    "lone_surrogate": (
        "Half of a surrogate pair: no such character exists",
        "Write the text as UTF-8, or remove the \\ud8.. to \\udf.. escape.",
    ),
    "duplicate_key": ("A key appears twice in one object", "Keep one; which is meant is unclear."),
    "row_not_object": ("The row is not a JSON object", "Use an object in braces."),
    # CSV
    "missing_column": (
        "A column is missing",
        "Name the columns as the keys of a row, as `prompt` and `completion`.",
    ),
    "duplicate_column": ("Two columns have the same name", "Rename or remove one."),
    "wrong_cell_count": (
        "The record has another number of cells than the header",
        'Put cells that contain commas or line breaks in "quotes".',
    ),
    "unclosed_quote": ("A quote is opened and never closed", 'Close it; write " as "" inside.'),
    "stray_quote": ("A quote inside a cell is not doubled", 'Write " as "" inside quotes.'),
    # chat rows
    "missing_messages": ("The row has no messages", "Add a `messages` list."),
    "messages_not_list": ("The messages are not a list", "Use a list of objects."),
    "messages_empty": ("The list of messages is empty", "Add a user and an assistant message."),
    "message_not_object": ("The message is not an object", "Use {role, content}."),
    "missing_role": ("The message has no role", "Add system, user, assistant or tool."),
    "role_not_string": ("The role is not a string", "Use system, user, assistant or tool."),
    "unknown_role": ("The role is unknown", "Use system, user, assistant or tool, in lower case."),
    "missing_content": ("The message has no content", "Add the text."),
    "content_not_string": ("The content is not text", "Use a string."),
    "content_empty": ("The text is empty", "Write the text, or remove the row."),
    "content_part": ("A part of the content is malformed", 'Use {"type": "text", "text": ...}.'),
    "image_in_text": ("Images cannot train a text model", "Remove the image part."),
    "nul_character": ("The text contains a NUL character", "Remove it."),
    "no_assistant": ("There is no assistant message to learn from", "Add the wanted answer."),
    "assistant_first": ("The first turn is the assistant's", "Begin with a user message."),
    "assistant_not_last": (
        "The last message is not the assistant's",
        "End with the answer the model should give.",
    ),
    "repeated_role": ("The same side speaks twice in a row", "Join the two messages."),
    "system_not_first": ("A system message is not the first message", "Move it to the front."),
    "bad_weight": ("A weight is neither 0 nor 1", "Use 0 (do not learn) or 1 (learn)."),
    "weights_all_zero": ("All weights are 0: nothing to learn", "Give one answer weight 1."),
    # tools
    "bad_tools": ("The list of tools is malformed", "Use OpenAI's function tool objects."),
    "bad_tool_calls": ("A tool call is malformed", "Use {id, type: function, function}."),
    "tool_arguments_invalid": (
        "The arguments of a tool call are not a JSON object",
        "Use a string that holds one JSON object.",
    ),
    "unknown_tool": ("A call names a tool that the row does not define", "Add it to `tools`."),
    "tool_call_id_mismatch": ("A result answers no open tool call", "Use the id of the call."),
    "orphan_tool_message": ("A tool message follows no tool call", "Add the call before it."),
    "missing_tool_result": ("A tool call was never answered", "Add a tool message for it."),
    # prompt / completion rows
    "missing_prompt": ("The row has no prompt", "Add `prompt`."),
    "missing_completion": ("The row has no completion", "Add `completion`."),
    "missing_instruction": ("The row has no instruction", "Add `instruction`."),
    "missing_output": ("The row has no output", "Add `output`."),
    "missing_text": ("The row has no text", "Add `text`."),
    "bad_history": (
        "A turn of the history is not a question and an answer",
        "Use [question, answer], both texts.",
    ),
    # rows that compare or judge answers
    "missing_chosen": ("The row has no chosen answer", "Add the answer that is preferred."),
    "missing_rejected": ("The row has no rejected answer", "Add the answer that is not preferred."),
    "prompts_differ": (
        "The two sides begin with different prompts",
        "Compare two answers to one prompt.",
    ),
    "chosen_equals_rejected": (
        "The chosen and the rejected answer are the same",
        "Remove the row, or give another answer.",
    ),
    "missing_label": ("The row has no label", "Add `label`: true or false."),
    "label_not_boolean": ("The label is neither true nor false", "Use true or false, no quotes."),
    "not_trainable": (
        "Nothing here trains on rows of this shape yet",
        "Give chats, prompts with completions, or plain text.",
    ),
    # with a base model
    "missing_template": (
        "The base model has no chat template, so it knows no turns",
        "Choose a base model that has one, or give `prompt` and `completion`.",
    ),
    "template_failed": (
        "The base model's chat template cannot render the row",
        "Change the row, or choose another base model.",
    ),
    "template_without_tools": (
        "The base model's chat template drops tool calls",
        "Choose a base model with tool calls, or remove them.",
    ),
    "row_too_long": ("The row has more tokens than max_length", "Shorten it, or truncate."),
    "split_not_text": (
        "Only rows of plain text can be split",
        'Use length_policy reject or truncate, or give {"text": ...}.',
    ),
    "no_trainable_token": (
        "No token is left to learn from",
        "Shorten the prompt, raise max_length, or give an answer weight 1.",
    ),
    # by policy
    "secret_in_text": (
        "The message contains a key or token",
        "Remove it, and replace the key where it is used: it has been copied.",
    ),
    "personal_data_refused": (
        "The message contains personal data, which this installation refuses",
        "Remove it, or replace it by a made-up value.",
    ),
    "benchmark_refused": (
        "The row contains an item of a benchmark, which this installation refuses",
        "Remove the row, or ask who runs the installation.",
    ),
    "toxic_refused": (
        "The row is toxic, says the model of this installation, which refuses such rows",
        "Remove the row, or ask who runs the installation.",
    ),
}

_WARNINGS: Final[dict[str, tuple[str, str]]] = {
    "blank_line": ("The line is blank and was skipped", "Remove it."),
    "json_array": (
        "The file is named like JSONL and is one JSON array",
        "It is read as it is; other tools want one object per line.",
    ),
    "not_trainable_yet": (
        "Rows of this shape can be checked, not trained on yet",
        "Give chats, prompts with completions, or plain text to train now.",
    ),
    "few_rows": ("The file is small", "100 good examples show effect."),
    "class_imbalance": (
        "Nearly all answers are the same",
        "Add rows with other answers, or the model learns to give this one always.",
    ),
    "extreme_length": (
        "The longest row is far longer than the others",
        "Look at it; often several rows ran together.",
    ),
    "language_mix": (
        "Some answers are written in another script than most",
        "Check that these rows belong here.",
    ),
    "near_duplicate": (
        "The row is nearly an earlier one: 90 % of the text is the same",
        "Keep the better of the two, unless you mean weight.",
    ),
    "benchmark_item": (
        "The row contains an item of a benchmark",
        "Remove it, or results of this benchmark mean nothing.",
    ),
    "benchmark_overlap": (
        "The file contains items of a benchmark",
        "Remove the rows that are named, or leave the benchmark out of the evaluation.",
    ),
    "personal_data": (
        "The message contains personal data",
        "Remove or replace it, unless the model should learn it.",
    ),
    "toxic_row": (
        "The row is toxic, says the model of this installation",
        "Read it, and remove it unless the model should learn it.",
    ),
    "duplicate_rows": ("Some rows are exact repeats", "Remove repeats, unless you mean weight."),
    "ignored_columns": ("Some keys are not used", "Remove them, or check their spelling."),
    "unknown_key": ("The message has a key that is not used", "Remove it or check its spelling."),
    "role_alias": ("The role is another format's name", "human is user, gpt is assistant."),
    "weight_ignored": ("Only assistant messages take a weight", "Remove it."),
    "empty_system": ("The system message is empty", "Remove it or write it."),
    "control_character": ("The text contains control characters", "Remove them."),
    "placeholder_text": ("The text looks like a placeholder", "Write the real text."),
    "output_equals_input": ("The answer repeats the question", "Check the row."),
    "needs_link": ("The question refers to a link or picture", "Put the content in the text."),
    "tools_undefined": ("The row calls tools but defines none", "Add `tools`."),
    "tools_not_shown": (
        "The base model's chat template does not show tools to the model",
        "Choose a base model with tool use.",
    ),
    "text_not_restored": (
        "The tokens of the row do not give its text back",
        "Look at the sample; the base model's tokenizer drops or changes characters.",
    ),
    "special_token_in_text": (
        "The text contains a special token of a chat template",
        "It is encoded as plain text; remove it if it is left over from a template.",
    ),
}

CATALOGUE: Final[dict[str, Code]] = {
    **{code: Code("error", *entry) for code, entry in _ERRORS.items()},
    **{code: Code("warning", *entry) for code, entry in _WARNINGS.items()},
}
