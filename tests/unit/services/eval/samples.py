"""Scores of made-up evaluations."""

from schemas.model import Lineage, VersionTerms
from tunery.work.scores import HoldoutScores, ItemScore, MeasuredRow, Scores

TERMS = VersionTerms(
    model_id="ft:1",
    series="series",
    lineage=Lineage(
        job_id="ftjob-0",
        base_id="small",
        base_sha256="a" * 64,
        dataset_version="v",
        training_sha256="a" * 64,
        config_sha256="a" * 64,
        steps=1,
        verdict="pass",
        scores_sha256="a" * 64,
    ),
)


def item(number: int, base: bool, adapter: bool) -> ItemScore:
    """One item whose right answer is the first."""
    return ItemScore(
        id=str(number),
        category="test",
        base=base,
        adapter=adapter,
        base_choice=int(not base),
        adapter_choice=int(not adapter),
    )


def holdout(base: float | None = 2.0, adapter: float | None = 1.0) -> HoldoutScores:
    """A validation split with these losses."""
    return HoldoutScores(
        rows=10,
        tokens=100,
        base_loss=base,
        adapter_loss=adapter,
        base_perplexity=None,
        adapter_perplexity=None,
        generated=8,
        base_exact=0,
        adapter_exact=2,
    )


def measured(number: int, base: float, adapter: float) -> MeasuredRow:
    """A row of the tenant's own with these scores by one measure."""
    return MeasuredRow(
        row=number,
        group=str(number),
        prompt=f"Which lamp is number {number}?",
        reference="the first",
        base="the last",
        adapter="the first",
        base_cut=False,
        adapter_cut=False,
        base_scores=(base,),
        adapter_scores=(adapter,),
    )


def scores(items: tuple[ItemScore, ...], losses: HoldoutScores) -> Scores:
    """All scores, without answers to prompts."""
    return Scores(
        base_sha256="0" * 64,
        adapter_sha256="1" * 64,
        precision="float32",
        items=items,
        holdout=losses,
        answers=(),
    )
