"""Raw scores of one evaluation: base and adapter on the same items, item by item."""

from msgspec import Struct


class Item(Struct, frozen=True, kw_only=True):
    """One capability item; `base` and `adapter` say whether each chose the right answer."""

    id: str
    category: str
    base: bool
    adapter: bool


class Holdout(Struct, frozen=True, kw_only=True):
    """The tenant's validation split. Losses are nats per trainable token; matches are counts."""

    rows: int
    tokens: int
    base_loss: float | None
    adapter_loss: float | None
    generated: int
    base_exact: int
    adapter_exact: int


class Answer(Struct, frozen=True, kw_only=True):
    """A fixed prompt answered by both."""

    prompt: str
    base: str
    adapter: str


class Scores(Struct, frozen=True, kw_only=True):
    items: tuple[Item, ...]
    holdout: Holdout
    answers: tuple[Answer, ...]
