"""Engines behind one port, and the files of models in the forms that they read.

* `llama`: llama.cpp as a module; `weights`: verified files, converted to its format
* `peft`: PEFT in a process beside; `answer_text`: text of its tokens
* `plain_weights`: verified files as PEFT reads them
* `served`: models at vLLM and SGLang servers; `inference_server`: their routes;
  `server_folders`: what they call folders, and which base model is in one
* `prompts`: questions as token ids; `tool_calls`: calls in what a model writes
* `relayed_files`: files that the agent of a replica fetches
"""
