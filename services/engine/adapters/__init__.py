"""llama.cpp as an engine, and the files of models in its format.

* `llama`: models in memory, and answers
* `prompts`: questions as token ids
* `weights`: verified and converted files, cached by hash
"""
