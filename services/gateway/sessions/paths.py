"""Names of what sessions save: `tinker://SESSION/KIND/NAME`, as the SDK shows them."""

import re
from typing import Final, NamedTuple, get_args

from services.gateway.sessions.bodies import NAME, SavedKind
from services.gateway.web.domain.errors import invalid
from tunery.platform.seal.sealer import Sealer

SCHEME: Final = "tinker://"
FORM: Final = re.compile(
    rf"{SCHEME}(session-[0-9a-f]{{1,64}})/({'|'.join(get_args(SavedKind))})/({NAME[1:-1]})"
)
WITHOUT_NAME: Final = "seq-"  # before the number of a command that saves a sampler without a name


class SavedPath(NamedTuple):
    """The path of what a session has saved."""

    session_id: str
    kind: SavedKind
    name: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.session_id}/{self.kind}/{self.name}"

    def row_id(self, seal: Sealer, tenant: str) -> str:
        """Return the id of its row: names may quote the tenant, and journals are kept for ever."""
        return seal.hmac(tenant, f"saved:{self}")


def parse_path(path: str, field: str, kind: SavedKind) -> SavedPath:
    """Raises ApiError 400 for what is no path of this kind."""
    matched = FORM.fullmatch(path)
    if matched is None or matched[2] != kind:
        form = f"{SCHEME}SESSION/{kind}/NAME"
        raise invalid(f"{path!r} is no path of the form {form}", field, "invalid_path")
    return SavedPath(matched[1], kind, matched[3])
