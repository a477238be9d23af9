"""Question to a guard model about an answer, and its verdict. Pure: callers send the question.

Two forms are understood: `safe` or `unsafe` in the first line, as Llama Guard answers, and lines
`Safety: …` and `Refusal: …`, as Qwen3Guard-Gen does.
"""

from dataclasses import dataclass
from typing import Any, Final

TEXT_MAX: Final = 8_000  # characters of a prompt or of an answer
TOKENS_MAX: Final = 128
SAFE: Final = {"safe": False, "controversial": False, "unsafe": True}
YES_NO: Final = {"yes": True, "no": False}


@dataclass(frozen=True)
class GuardVerdict:
    """Verdict of a guard on an answer."""

    harmful: bool  # the answer does harm
    refusal: bool | None = None  # the answer refuses; None: the guard gives no verdict on that


def guard_request(model: str, prompt: str, answer: str) -> dict[str, Any]:
    """The body of `POST /chat/completions`: the conversation that is to be judged."""
    texts = (("user", prompt), ("assistant", answer))
    return {
        "model": model,
        "messages": [{"role": role, "content": text[:TEXT_MAX]} for role, text in texts],
        "temperature": 0,
        "max_tokens": TOKENS_MAX,
    }


def guard_verdict(text: str) -> GuardVerdict | None:
    """Parse the text of a guard; None: it is not understood."""
    lines = [line.strip().lower() for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    if lines[0] in SAFE:
        return GuardVerdict(SAFE[lines[0]])
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    safety, refusal = fields.get("safety", "").strip(), fields.get("refusal", "").strip()
    if safety not in SAFE:
        return None
    return GuardVerdict(SAFE[safety], YES_NO.get(refusal))
