"""The shapes that a row may have, and the rules of each.

parsing          the bytes of one row to a value, or the reason why it is not valid JSON
conversation     `Conversation`: what a checked row of any dialect becomes
detection        the dialect of a row, recognised by its keys
text_rules       rules that hold for any text: empty, placeholder, special token
tools            tools, tool calls and their results
chat             chat and ShareGPT rows
chat_fast_path   the same rules for valid chat rows, decoded many at a time
single_turn      prompt and completion, Alpaca, and plain text
prompts          prompts that a model answers, with what a grader reads
preferences      two answers compared (DPO), or one answer with a label (KTO)
"""
