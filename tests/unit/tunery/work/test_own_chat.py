"""A job's own chat template and end tokens."""

from schemas.dataset import ChatFormat
from schemas.sealed import Sealed
from tunery.work.own_chat import OwnChat


def test_bases_f7_tokens_that_were_named_twice_are_hashed_as_when_they_were_asked_for() -> None:
    asked = OwnChat(None, ("<|a|>",))
    sealed = Sealed(key_id="k", nonce=b"", ciphertext=b"")
    on_log = ChatFormat(sha256=asked.sha256, eot_tokens=sealed)
    assert OwnChat.opened(on_log, lambda *_: '["<|a|>","<|a|>"]') == asked
