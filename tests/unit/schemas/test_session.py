"""Commands of sessions: names, and which of them a restored process takes again."""

from schemas.session import CHANGING, SESSION_COMMAND_KINDS, SessionCommand
from schemas.training import BlobFile

BODY = BlobFile(name="sample", blob="t/acme/sessions/1", sha256="ab" * 32, bytes=1)


def test_a_samplers_command_has_another_name_than_the_models_own_of_that_number() -> None:
    own = SessionCommand(seq=3, kind="optim_step", body=BODY)
    sampled = SessionCommand(seq=3, kind="sample", body=BODY, sampler="ab12")
    assert (own.name, sampled.name) == ("3", "ab12:3")


def test_what_only_answers_is_not_taken_again() -> None:
    answering = {"forward", "sample", "save_state", "save_sampler"}
    assert set(SESSION_COMMAND_KINDS) - answering == CHANGING
