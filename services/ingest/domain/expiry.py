"""What goes by itself: files after the time their owner gave them, uploads nobody completed."""

from typing import Final

from schemas.units import Ms
from services.ingest.domain.state import Libraries, Library

EXPIRED_MAX: Final = 100  # by one tick; the next one takes the rest


def expires_at(at: Ms, after_ms: Ms | None) -> Ms | None:
    return None if after_ms is None else at + after_ms


def due(library: Library, at: Ms) -> list[str]:
    """Ids that go now, the oldest first. A file that a job or a model needs waits for its end."""
    needed = _needed(library)
    found = ((when, name) for name, when in library.expires.items() if when <= at)
    return [name for _, name in sorted(found) if name not in needed][:EXPIRED_MAX]


def earliest(state: Libraries) -> tuple[Ms, str] | None:
    """The next moment at which something is due, and its tenant."""
    moments = (
        (when, tenant)
        for tenant, library in state.items()
        if library.expires
        for needed in (_needed(library),)
        for name, when in library.expires.items()
        if name not in needed
    )
    return min(moments, default=None)


def _needed(library: Library) -> set[str]:
    needs = (*library.pins.values(), *library.kept.values())
    return {name for need in needs for name in need.files}
