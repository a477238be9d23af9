"""Engines behind one port, and the files of models in the forms that they read.

* `llama`: llama.cpp as a module; `weights`: verified files, converted to its format
* `peft`: PEFT in a process beside; `answer_text`: text of its tokens
* `plain_weights`: verified files as PEFT reads them
* `prompts`: questions as token ids
"""
