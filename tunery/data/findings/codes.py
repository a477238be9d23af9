"""The catalogue of finding codes: what each code means and how to fix it.

Codes are stable. Messages may change.
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding."""

    severity: Severity  # an error rejects the file, a warning does not
    meaning: str  # what is wrong, a sentence without its full stop
    fix: str  # what to do about it, shown as the hint of the finding


_ERRORS: Final[dict[str, tuple[str, str]]] = {
    # the file
    "empty_file": ("The file has no rows", "Upload a file with one example per line."),
    "header_only": ("The CSV file has a header and no rows", "Add rows below the header."),
    "too_few_rows": (
        "The file has too few rows",
        "Add examples; 100 good examples already change a model.",
    ),
    "too_many_rows": (
        "The file has too many rows; reading stopped",
        "Split the file, or ask for a plan that allows more.",
    ),
    "all_rows_equal": ("All rows are the same", "Upload different examples."),
    "unsupported_format": (
        "The file format is not supported",
        "Convert it to JSONL (one JSON object per line, UTF-8), CSV or Parquet.",
    ),
    "truncated_file": ("The file ends too early", "Upload it again, and compare the sizes."),
    "damaged_file": ("The file is damaged", "Create the file again, or upload it again."),
    "decompression_bomb": (
        "The compressed file expands far more than text does",
        "Upload it without compression.",
    ),
    "not_utf8": ("The file is not UTF-8 text", "Save it again as UTF-8."),
    "unknown_dialect": (
        "The row matches no supported format",
        'Use {"messages": [...]} or {"prompt": ..., "completion": ...}.',
    ),
    "mixed_formats": (
        "The row has keys of two formats",
        "Keep one format, such as `messages`, or `prompt` and `completion`.",
    ),
    "other_dialect": (
        "The row has a different format from the first rows",
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
    "trailing_comma": ("There is a comma with nothing after it", "Remove the last comma."),
    "python_repr": (
        "The line is in Python notation, not JSON",
        "Write rows with json.dumps, not str or repr.",
    ),
    "not_a_number": ("NaN and Infinity are not valid JSON", "Use null or a number."),
    "two_objects": (
        "The line contains more than one JSON value",
        "Put each object on its own line.",
    ),
    "nested_too_deep": ("The row is nested deeper than 64 levels", "Flatten the row."),
    "lone_surrogate": (
        "The text contains half of a surrogate pair, which is not a character",
        "Write the text as UTF-8, or remove the \\ud8.. to \\udf.. escape.",
    ),
    "duplicate_key": ("A key appears twice in one object", "Keep one of the two."),
    "row_not_object": ("The row is not a JSON object", "Use an object in braces."),
    # CSV
    "missing_column": (
        "A column is missing",
        "Name the columns like the keys of a row, such as `prompt` and `completion`.",
    ),
    "duplicate_column": ("Two columns have the same name", "Rename or remove one."),
    "wrong_cell_count": (
        "The record has a different number of cells from the header",
        'Put cells that contain commas or line breaks in "quotes".',
    ),
    "unclosed_quote": (
        "A quotation mark is opened and never closed",
        'Close it; inside quotes, write " as "".',
    ),
    "stray_quote": (
        "A quotation mark inside a cell is not doubled",
        'Inside quotes, write " as "".',
    ),
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
    "image_in_text": ("A text model cannot learn from images", "Remove the image part."),
    "nul_character": ("The text contains a NUL character", "Remove it."),
    "no_assistant": (
        "There is no assistant message to learn from",
        "Add the answer that the model should give.",
    ),
    "assistant_not_last": (
        "The last message is not an assistant message",
        "End with the answer that the model should give.",
    ),
    "bad_weight": ("A weight is neither 0 nor 1", "Use 0 (do not learn) or 1 (learn)."),
    "weights_all_zero": ("All weights are 0: nothing to learn", "Give one answer weight 1."),
    # tools
    "bad_tools": ("The list of tools is malformed", "Use OpenAI's function tool objects."),
    "bad_tool_calls": ("A tool call is malformed", "Use {id, type: function, function}."),
    "tool_arguments_invalid": (
        "The arguments of a tool call are not a JSON object",
        "Use a string that holds one JSON object.",
    ),
    "unknown_tool": (
        "A tool call names a tool that the row does not define",
        "Add the tool to `tools`.",
    ),
    "tool_call_id_mismatch": (
        "A tool result has the id of no open tool call",
        "Use the id of the call.",
    ),
    "orphan_tool_message": (
        "A tool message does not follow a tool call",
        "Add the call before it.",
    ),
    "missing_tool_result": ("A tool call has no result", "Add a tool message for it."),
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
    # preference rows
    "missing_chosen": ("The row has no chosen answer", "Add the answer that is preferred."),
    "missing_rejected": ("The row has no rejected answer", "Add the answer that is not preferred."),
    "prompts_differ": (
        "The chosen and the rejected conversation have different prompts",
        "Compare two answers to the same prompt.",
    ),
    "chosen_equals_rejected": (
        "The chosen and the rejected answer are the same",
        "Remove the row, or give another answer.",
    ),
    "missing_label": ("The row has no label", "Add `label`: true or false."),
    "prompt_has_answer": (
        "A prompt ends with an answer",
        "End with the user's message: the model writes the answer, and the grader reads it.",
    ),
    "missing_item": (
        "A prompt has nothing that a grader could read",
        "Add a field beside `messages`, such as `answer`: the grader has it as `{{item.answer}}`.",
    ),
    "label_not_boolean": ("The label is neither true nor false", "Use true or false, no quotes."),
    "not_trainable": (
        "The training method does not learn from rows of this format",
        "Use `dpo` for pairs, `kto` for labels, `reinforcement` for prompts, else `supervised`.",
    ),
    # with a base model
    "missing_template": (
        "The base model has no chat template, so it cannot train on chats",
        "Choose a base model that has one, or use `prompt` and `completion`.",
    ),
    "template_failed": (
        "The base model's chat template cannot render the row",
        "Change the row, or choose another base model.",
    ),
    "template_drops_text": (
        "The base model's chat template leaves out a part of an answer that is to be learned",
        "Set training.reasoning to drop if it is reasoning, give the answer weight 0, or cut it.",
    ),
    "template_without_tools": (
        "The base model's chat template ignores tool calls",
        "Choose a base model that supports tool calls, or remove them.",
    ),
    "row_too_long": (
        "The row has more tokens than max_length",
        "Shorten it, raise max_length, or use length_policy truncate.",
    ),
    "split_not_text": (
        "Only rows of plain text can be split",
        'Use length_policy reject or truncate, or use {"text": ...}.',
    ),
    "no_trainable_token": (
        "No token is left to learn from",
        "Shorten the prompt, raise max_length, or give an answer weight 1.",
    ),
    # by policy
    "secret_in_text": (
        "The message contains an API key, a password token or a private key",
        "Remove it, and revoke the key: it has been copied.",
    ),
    "personal_data_refused": (
        "The message contains personal data, which this installation refuses",
        "Remove it, or replace it by an invented value.",
    ),
    "benchmark_refused": (
        "The row contains an item of a benchmark, which this installation refuses",
        "Remove the row, or ask the operator of this installation.",
    ),
    "toxic_refused": (
        "The toxicity model of this installation rates the row as toxic, which it refuses",
        "Remove the row, or ask the operator of this installation.",
    ),
}

_WARNINGS: Final[dict[str, tuple[str, str]]] = {
    "blank_line": ("The line is blank and was skipped", "Remove it."),
    "json_array": (
        "The file is named like JSONL but contains one JSON array",
        "It is accepted as it is; other tools expect one object per line.",
    ),
    "few_rows": ("The file is small", "Add examples; 100 good examples already change a model."),
    "class_imbalance": (
        "Nearly all answers are the same",
        "Add rows with other answers, or the model learns to give only this answer.",
    ),
    "extreme_length": (
        "The longest row is far longer than the others",
        "Read it; often several rows were joined by mistake.",
    ),
    "language_mix": (
        "Some answers are written in a different script from most",
        "Check that these rows belong to the dataset.",
    ),
    "near_duplicate": (
        "The row is nearly equal to an earlier row: 90 % of the text is the same",
        "Keep the better of the two, unless the repeat is intended.",
    ),
    "benchmark_item": (
        "The row contains an item of a benchmark",
        "Remove the row, or the results of this benchmark mean nothing.",
    ),
    "benchmark_overlap": (
        "The file contains items of a benchmark",
        "Remove the listed rows, or leave the benchmark out of the evaluation.",
    ),
    "personal_data": (
        "The message contains personal data",
        "Remove or replace it, unless the model should learn it.",
    ),
    "toxic_row": (
        "The toxicity model of this installation rates the row as toxic",
        "Read it, and remove it unless the model should learn it.",
    ),
    "duplicate_rows": (
        "Some rows are exact repeats",
        "Remove the repeats, unless they are intended.",
    ),
    "ignored_columns": ("Some keys are not used", "Remove them, or check their spelling."),
    "unknown_key": ("The message has a key that is not used", "Remove it, or check its spelling."),
    "role_alias": (
        "The role has a name from another format",
        "Write user for human, and assistant for gpt.",
    ),
    "assistant_first": (
        "The first message is an assistant message",
        "Begin with a user message, unless the model is to speak first.",
    ),
    "repeated_role": (
        "Two messages in a row have the same role",
        "Join the two messages, unless they are meant to be two.",
    ),
    "system_not_first": (
        "A system message is not the first message",
        "Move it to the front, unless it belongs where it is.",
    ),
    "weight_ignored": ("Only assistant messages can have a weight", "Remove the weight."),
    "empty_system": ("The system message is empty", "Remove it, or write its text."),
    "control_character": ("The text contains control characters", "Remove them."),
    "placeholder_text": ("The text looks like a placeholder", "Write the real text."),
    "output_equals_input": ("The answer repeats the question", "Check the row."),
    "needs_link": (
        "The question refers to a link or picture that is not in the row",
        "Put the content in the text.",
    ),
    "tools_undefined": ("The row calls tools but defines none", "Add `tools`."),
    "tools_not_shown": (
        "The base model's chat template does not show tools to the model",
        "Choose a base model that supports tools.",
    ),
    "text_not_restored": (
        "Decoding the tokens of the row does not restore its text",
        "Compare the sample; the base model's tokenizer drops or changes characters.",
    ),
    "special_token_in_text": (
        "The text contains a special token of a chat template",
        "It is encoded as plain text; remove it if it comes from a template by mistake.",
    ),
}

CATALOGUE: Final[dict[str, Code]] = {
    **{code: Code("error", *entry) for code, entry in _ERRORS.items()},
    **{code: Code("warning", *entry) for code, entry in _WARNINGS.items()},
}
