"""Answers of base models and versions, in OpenAI's shapes.

* `routes`: `/v1/chat/completions`
* `completion_routes`, `response_routes`: `/v1/completions` and `/v1/responses`
* `bodies`, `completion_bodies`, `responses`: requests and answers
* `asking`: asks the model that a request names
* `spending`: refuses who has reached a budget
* `models`: the model that a request names, as an engine loads it
* `observed`: counts what comes of a question, and asks a shadow
* `answering`: several answers to one question, and errors for refusals
* `frames`: an answer as server-sent events
* `engine_socket`: asks the engine of this machine
"""
