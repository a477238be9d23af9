from pathlib import Path
from typing import Final, get_args

import msgspec
import pytest

from schemas.dataset import RowKind
from schemas.training import MethodName
from tests.unit.tunery.plan.samples import SMOL, tokens
from tunery.data.dialects.detection import Dialect
from tunery.plan.hyperparameters import resolve
from tunery.plan.methods import ROW_WORDS, ROWS_OF_METHOD, methods_of_rows, rows_of_dialect
from tunery.work.spec import Hyper


def test_method_every_dialect_has_one() -> None:
    assert all(methods_of_rows(rows_of_dialect(dialect)) for dialect in get_args(Dialect))
    assert methods_of_rows("labels") == ("kto",)
    assert "kto" in methods_of_rows("pairs"), "a pair is two answers with labels"
    assert set(ROWS_OF_METHOD.values()) <= set(get_args(RowKind)) == set(ROW_WORDS)


GOLDEN: Final = Path(__file__).with_name("golden")


@pytest.mark.parametrize("method", ROWS_OF_METHOD)
def test_method_a_request_is_compiled_to_exactly_this_configuration(method: MethodName) -> None:
    """To accept a change: write `compiled(method)` to the file, and say why in the commit."""
    assert compiled(method) == (GOLDEN / f"{method}.json").read_text(encoding="utf-8")


def compiled(method: MethodName) -> str:
    """What the training process gets for a request that names its method alone."""
    hyper, _ = resolve({"method": method}, SMOL, tokens(100_000), 7, "cpu", 100_000)
    fields = msgspec.json.encode(Hyper.from_log(hyper), order="deterministic")
    return msgspec.json.format(fields, indent=1).decode() + "\n"
