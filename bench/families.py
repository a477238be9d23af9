"""Proves what jobs can do with families of models, as `tunery base add` proves a base.

    python -m bench.families [FAMILY ...] [--all] [--json] [--page]

A family is tried with a tiny random model of its default configuration, and the tokenizer and
template of the tests' tiny base: what holds of it is the architecture's, and not of any weights.
Without names it tries those of `docs/reference/families.md`; `--page` writes that page anew, and
`--all` tries every family of the installed transformers that writes text.
"""

import argparse
import json
import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from tests.bases import tiny_base
from tests.families import known, write_tiny
from tunery.cli.base import run_program
from tunery.data.template_proof import TemplateResult, prove_template
from tunery.ml.small_models import SMALL_SCALE

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "families.md"
ROW: Final = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
TRY_S_MAX: Final = 240
REASON_MAX: Final = 110  # characters of a reason in a row of the page
YES, NO = "yes", "no"
HEAD: Final = "| family | LoRA | all weights | packed rows | why not |\n|---|---|---|---|---|\n"


@dataclass(frozen=True)
class Tried:
    """Proof of a family. why: reasons of what it cannot do, in the words of the libraries."""

    family: str
    lora: bool = False
    full: bool = False
    packs: bool = False
    why: tuple[str, ...] = ()

    @property
    def row(self) -> str:
        """A row of the page."""
        held = (YES if each else NO for each in (self.lora, self.full, self.packs))
        why = "; ".join(_short(each) for each in self.why)
        return f"| `{self.family}` | {' | '.join(held)} | {why} |"


def try_family(family: str, template: TemplateResult, work: Path) -> Tried:
    """Prove a tiny random model of a family in a process of its own."""
    try:
        folder = write_tiny(family, work / family, scale=SMALL_SCALE)
    except Exception as error:  # of any library
        return Tried(family, why=(f"no tiny model could be made: {error}",))
    encoded = msgspec.json.encode(template.proof)
    paths = (folder, template.shard)
    result = run_program("tunery.ml.base_proof", *paths, stdin=encoded, limit_s=TRY_S_MAX)
    if isinstance(result, str):
        return Tried(family, why=(result,))
    proof = result["proof"] or {"adaptations": (), "packs": False}
    return Tried(
        family,
        lora="lora" in proof["adaptations"],
        full="full" in proof["adaptations"],
        packs=proof["packs"],
        why=tuple(result["notes"]),
    )


def try_families(families: Iterable[str]) -> Iterator[Tried]:
    """Prove each of these families."""
    with TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "template").mkdir()
        template = prove_template(tiny_base().dir, work / "template")
        for family in families:
            yield try_family(family, template, work)


def listed() -> tuple[str, ...]:
    """Families of the page."""
    return tuple(ROW.findall(PAGE.read_text(encoding="utf-8")))


def _short(reason: str) -> str:
    """A reason in one line of a table."""
    line = " ".join(reason.split()).replace("|", "/").replace("`", "'")
    return line if len(line) <= REASON_MAX else f"{line[: REASON_MAX - 1]}…"


def _write_page(tried: Sequence[Tried]) -> None:
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(HEAD)
    tail = rest.partition("\n\n")[2]
    rows = "\n".join(each.row for each in sorted(tried, key=lambda each: each.family))
    PAGE.write_text(f"{head}{HEAD}{rows}\n\n{tail}".rstrip() + "\n", encoding="utf-8")


def main() -> None:
    """Print a row for each family as it is tried."""
    parser = argparse.ArgumentParser(prog="python -m bench.families", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    asked = known() if arguments.all else arguments.families or listed()
    if unknown := sorted({*asked} - {*known()}):
        parser.error(f"transformers has no family that writes text by the name {unknown[0]}")
    tried = []
    for each in try_families(asked):
        tried.append(each)
        print(json.dumps(asdict(each)) if arguments.json else each.row, flush=True)
    if arguments.page:
        _write_page(tried)


if __name__ == "__main__":
    main()
