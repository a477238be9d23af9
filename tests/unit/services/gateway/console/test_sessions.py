"""Sign-ins of the console: the stored entry is useless without the token, and expires."""

from services.gateway.console.sessions import OF_TENANT_MAX, KeptHere, Person, Sessions

PERSON = Person("tun-secret", "acme", "laptop", frozenset({"read", "files.write"}))


class Spy(KeptHere):
    """The stored entries, as a thief of the store would see them."""

    def text(self) -> str:
        return repr(self._values)


async def test_the_store_has_neither_key_nor_token() -> None:
    kept = Spy()
    token = await Sessions(kept).begin(PERSON)
    assert "tun-secret" not in kept.text()
    assert token not in kept.text()
    assert await Sessions(kept).find(token) == PERSON
    assert await Sessions(kept).find(token[:-1]) is None


async def test_a_value_under_another_name_opens_nothing() -> None:
    kept = Spy()
    sessions = Sessions(kept)
    swapped, other = await sessions.begin(PERSON), await sessions.begin(PERSON)
    first, second = list(kept._values)
    kept._values[first] = kept._values[second]
    assert await sessions.find(swapped) is None
    assert await sessions.find(other) == PERSON


async def test_a_session_ends_when_its_time_is_over_or_it_is_ended() -> None:
    now = 0.0
    sessions = Sessions(KeptHere(lambda: now))
    token, code = await sessions.begin(PERSON, 10), await sessions.begin(PERSON, 10)
    assert await sessions.end(code) == PERSON
    assert await sessions.end(code) is None
    now = 10.0
    assert await sessions.find(token) is None


async def test_sign_ins_of_one_tenant_end_no_session_of_another() -> None:
    sessions = Sessions(KeptHere())
    token = await sessions.begin(PERSON)
    own = [await sessions.begin(Person("k", "flood", "n")) for _ in range(OF_TENANT_MAX + 2)]
    assert await sessions.find(token) == PERSON
    are_kept = [await sessions.find(each) is not None for each in (*own[:3], own[-1])]
    assert are_kept == [False, False, True, True]


def test_scopes_decide_which_actions_are_offered() -> None:
    assert PERSON.may("jobs", "read")
    assert PERSON.may("files", "write")
    assert not PERSON.may("jobs", "write")
    assert Person("k", "t", "n").may("jobs", "write"), "the API decides where scopes are not known"
