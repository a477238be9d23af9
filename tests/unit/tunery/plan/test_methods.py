from typing import get_args

from schemas.dataset import RowKind
from tunery.data.dialects.detection import TRAINABLE
from tunery.plan.methods import ROW_WORDS, ROWS_OF_METHOD, methods_of_rows, rows_of_dialect


def test_method_every_trainable_dialect_has_one() -> None:
    assert all(methods_of_rows(rows_of_dialect(dialect)) for dialect in TRAINABLE)
    assert methods_of_rows(rows_of_dialect("kto")) == ()
    assert set(ROWS_OF_METHOD.values()) <= set(get_args(RowKind)) == set(ROW_WORDS)
