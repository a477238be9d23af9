"""Types that bodies of requests share. Unknown fields are refused, because typos cost runs."""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StringConstraints

METADATA_PAIRS_MAX: Final = 16
METADATA_KEY_MAX: Final = 64
METADATA_VALUE_MAX: Final = 512
NAME_MAX: Final = 256
SECONDS_MAX: Final = 2**33  # since the epoch: the year 2242
INT_MAX: Final = 2**53 - 1  # what every JSON reader keeps exactly
Id = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=256)]
Name = Annotated[str, StringConstraints(strict=True, max_length=NAME_MAX)]
Count = Annotated[StrictInt, Field(ge=0, le=INT_MAX)]
Metadata = Annotated[
    dict[
        Annotated[str, StringConstraints(strict=True, max_length=METADATA_KEY_MAX)],
        Annotated[str, StringConstraints(strict=True, max_length=METADATA_VALUE_MAX)],
    ],
    Field(max_length=METADATA_PAIRS_MAX),
]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
