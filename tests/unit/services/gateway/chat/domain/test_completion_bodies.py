"""Bodies of completions and responses."""

from services.gateway.chat.domain.completion_bodies import CompletionRequest, ResponseRequest


def test_formats_of_text_are_those_of_chats() -> None:
    schema = {"type": "object"}
    form = {"format": {"type": "json_schema", "name": "a", "schema": schema, "strict": True}}
    read = ResponseRequest.model_validate({"model": "a", "input": "b", "text": form})
    assert read.text == {"type": "json_schema", "json_schema": {"schema": schema}}
    plain = ResponseRequest.model_validate({"model": "a", "input": "b", "text": {}})
    assert plain.text is None
    assert CompletionRequest.model_validate({"model": "a", "prompt": "b"}).prompt == ["b"]
