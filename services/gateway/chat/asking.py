"""What all questions have in common: who asks, and how an answer is named."""

from typing import Final

from services.gateway.chat.responses import AnswerIdentity
from services.gateway.web.deps import Deps, Principal
from tunery.work.engine import Asker, EngineModel

FINGERPRINT_DIGITS: Final = 10


def asker(caller: Principal, model: EngineModel, name: str) -> Asker:
    """Whom tokens are counted for; a base model is counted by its id, whatever its alias."""
    return Asker(caller.tenant, caller.key_id, name if model.adapter else model.base_id)


def identity_of(deps: Deps, model: EngineModel, name: str, prefix: str) -> AnswerIdentity:
    """A new answer of the model that was asked for as `name`."""
    return AnswerIdentity(
        id=deps.fresh(prefix),
        created=deps.clock.now_ms() // 1_000,
        model=name,
        system_fingerprint=f"fp_{model.base_sha256[:FINGERPRINT_DIGITS]}",
    )
