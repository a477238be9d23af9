"""Settings of a job that the proof of its base model rules out."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from schemas.envelope import Reason
from schemas.model import BaseProof

ProofCode: TypeAlias = Literal[
    "base_does_not_pack",  # base_id
    "base_takes_no_adapter",  # base_id
    "base_takes_adapters_alone",  # base_id
    "base_has_other_layers",  # base_id, layers, known
]
PROOF_WORDS: Final[Mapping[ProofCode, str]] = {
    "base_does_not_pack": (
        "documents of a packed row see each other in {base_id}, as its proof says "
        "(`tunery base show`); leave packing out, or set it to false"
    ),
    "base_takes_no_adapter": (
        "no adapter could be trained on {base_id} when it was proven (`tunery base show`); set "
        'adaptation to "full", or choose another base model'
    ),
    "base_takes_adapters_alone": (
        "not every weight of {base_id} could be trained when it was proven (`tunery base show`); "
        'set adaptation to "lora"'
    ),
    "base_has_other_layers": "no adapter can be on {layers} of {base_id}; choose among {known}",
}


def unproven(
    asked: Mapping[str, Any], base_id: str, proof: BaseProof
) -> Iterator[tuple[str, Reason]]:
    """Yield the names of requested hyper-parameters that a proof rules out, and why."""
    if asked.get("packing") is True and not proof.packs:
        yield "packing", _reason("base_does_not_pack", base_id=base_id)
    if asked.get("adaptation") == "full":
        if "full" not in proof.adaptations:
            yield "adaptation", _reason("base_takes_adapters_alone", base_id=base_id)
        return
    if "lora" not in proof.adaptations:
        yield "adaptation", _reason("base_takes_no_adapter", base_id=base_id)
        return
    names = asked.get("target_modules")
    if isinstance(names, list | tuple):
        others = [
            name
            for name in map(str, names)
            if not {name, name.rpartition(".")[2]} & {*proof.targets}
        ]
        if others:
            layers, known = ", ".join(others), ", ".join(proof.targets)
            reason = _reason("base_has_other_layers", base_id=base_id, layers=layers, known=known)
            yield "target_modules", reason


def _reason(code: ProofCode, **params: str | int) -> Reason:
    return Reason(code=code, params=params)
