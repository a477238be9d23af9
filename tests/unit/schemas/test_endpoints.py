"""E-mail addresses of endpoints: only those that every mail program reads in the same way."""

import pytest

from schemas.endpoints import mail_address


@pytest.mark.parametrize(
    "address",
    [
        *("ops@example.com", "first.last+tag@mail.example.co.uk", "a@b.cd", "o'neil@x-y.example"),
        *("ops@xn--bcher-kva.example", f"{'a' * 64}@example.com"),
    ],
)
def test_an_address_is_what_follows_the_scheme(address: str) -> None:
    assert mail_address(f"mailto:{address}") == address


@pytest.mark.parametrize(
    "url",
    [
        *(
            "https://example.com/h",
            "ops@example.com",
            "mailto:",
            "mailto:ops",
            "mailto:@example.com",
        ),
        *("mailto:ops@", "mailto:ops@localhost", "mailto:ops@127.0.0.1", "mailto:ops@[127.0.0.1]"),
        *("mailto:a@b.cd,c@d.ef", "mailto:a@b.cd?bcc=c@d.ef", "mailto:a@b.cd\n", "mailto:a b@c.de"),
        *(
            "mailto:a@b.cd\r\nBcc: c@d.ef",
            "mailto:a@b.cd%0aBcc:c",
            "mailto:.a@b.cd",
            "mailto:a.@b.cd",
        ),
        *("mailto:a@-b.cd", "mailto:a@b-.cd", "mailto:a@b..cd", "mailto:ö@b.cd", "mailto:a@ö.de"),
        *(f"mailto:{'a' * 65}@b.cd", f"mailto:a@{'b.' * 126}cd", "MAILTO:a@b.cd"),
        # mail programs send these to victim@evil.com, victim@evil.com by a relay, or another name
        *("mailto:victim%40evil.com(@example.com", "mailto:victim@evil.com(@example.com"),
        *("mailto:victim%evil.com@example.com", "mailto:evil.com!victim@example.com"),
        *('mailto:"a@b.cd"@example.com', "mailto:a(x)@example.com", "mailto:a:b@c.de;@example.com"),
    ],
)
def test_anything_but_one_plain_address_is_refused(url: str) -> None:
    assert mail_address(url) is None
