"""The header of an event, for tests of reactions and projections."""

from schemas.envelope import Header


def header(stream: str, *, offset: int = 0, at: int = 0) -> Header:
    """Header of the first event of the tenant `acme`, in partition 0."""
    return Header(
        stream=stream,
        partition=0,
        offset=offset,
        at=at,
        key="acme",
        tenant="acme",
        seq=1,
        command_id="c",
        incarnation=0,
    )
