"""From conversations to the token sequences that a training run reads.

chat_template     the chat template of a base model, rendered in a sandbox
message_marks     marks that show where a message ends up in the rendered text
turn_format       how a template begins and ends the turns of the assistant
template_layout   what a template writes around the messages of one kind of conversation
chat_renderer     chats to texts, with the spans that a model learns
tokenizer         `Tokenizer`: conversations to token ids and loss masks
length_policy     rows longer than `max_length`: refused, truncated or split
chunks            tokenised rows in files, so that an interrupted preparation continues
packing           several sequences in one row of `max_length` tokens
shard_packer      the packed rows of one shard, and their sums
shards            packed rows as safetensors files
"""
