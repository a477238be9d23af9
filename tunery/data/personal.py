"""Recognises personal data and secrets in a text by their shape and check digits.

Results contain kinds and positions, never values. Every quantifier of the patterns is bounded and
candidates are confirmed by arithmetic, so the running time is linear in the length of any text.
Names and street addresses have no fixed shape; they need a model, which the caller passes in.
Libraries for IBANs and phone numbers were not used: none states a bound on its running time.
"""

import ipaddress
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

Kind: TypeAlias = Literal[
    "secret", "email", "iban", "card", "ssn", "ip", "phone", "person", "place"
]

KINDS: Final[frozenset[Kind]] = frozenset(get_args(Kind))
NUMBERS: Final[frozenset[Kind]] = frozenset(("card", "ssn", "phone"))

LOCAL_CHARS_MAX: Final = 64  # of an address before the @ (RFC 5321)
LOCAL: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._%+-"

DOMAIN: Final = re.compile(r"@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9-])")
# digits, with up to two separators between any two
NUMBER: Final = re.compile(r"(?<![\w.+/])(?:\+|\()?\d(?:[ .()/-]{0,2}\d){6,18}(?![\w/]|\.\d)")
IBAN: Final = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}")
IPV4: Final = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)")
IPV6: Final = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:])")
SSN: Final = re.compile(r"(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}")
# the usual ways to write a telephone number: +…, (ddd) ddd-dddd, ddd-ddd-dddd, or 0 and groups
PHONE: Final = re.compile(
    r"\+\d[\d .()/-]{6,24}|\(\d{3}\)[ .-]?\d{3}[ .-]\d{4}|\d{3}([ .-])\d{3}\1\d{4}"
    r"|\(?0[1-9]\d{0,4}\)?[ /-]\d{2,8}(?:[ -]\d{2,8}){0,4}"
)
NOT_DIGITS: Final = re.compile(r"\D")
CARD: Final = re.compile(
    r"[2-6]\d{12,18}|[2-6]\d{3}([ -])\d{4}\1\d{4}\1\d{4}(?:\1\d{3})?|3\d{3}([ -])\d{6}\2\d{4,5}"
)

# Prefixes that issuers give their keys; a text without any of them contains no known secret.
KEY_PREFIXES: Final = (
    *("AKIA", "ASIA", "gh", "glpat-", "sk-", "sk_live_", "rk_live_", "xox", "AIza", "hf_"),
    *("npm_", "pypi-", "SG.", "eyJ", "PRIVATE KEY"),
)
SECRET: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"A(?:KIA|SIA)[A-Z0-9]{16}"  # AWS
    r"|gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_\w{36,255}|glpat-[\w-]{20,64}"
    r"|sk-[\w-]{20,200}|[sr]k_live_[A-Za-z0-9]{16,128}"  # OpenAI, Anthropic, Stripe
    r"|xox[abeprs]-[A-Za-z0-9-]{10,200}|AIza[\w-]{35}|hf_[A-Za-z0-9]{30,64}"
    r"|npm_[A-Za-z0-9]{36}|pypi-[\w-]{50,250}|SG\.[\w-]{22}\.[\w-]{43}"
    r"|eyJ[\w-]{10,400}\.eyJ[\w-]{2,4000}\.[\w-]{10,800}"  # JSON web token
    r")(?![A-Za-z0-9])"
    r"|-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY-----"
)
PEM_END: Final = re.compile(r"-----END [A-Z0-9 ]{0,40}KEY-----")

# length of an IBAN by country (SWIFT's registry)
_IBANS: Final = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DK18 DO28 "
    "EE20 EG29 ES24 FI18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 "
    "IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MR27 MT31 MU30 "
    "NL18 NO15 PK24 PL28 PS29 PT25 QA29 RO24 RS22 SA24 SC31 SE24 SI19 SK24 SM27 ST25 SV28 TL23 "
    "TN24 TR26 UA29 VA22 VG24 XK20"
)
IBAN_CHARS: Final = {name: int(size) for name, size in re.findall(r"([A-Z]{2})(\d\d)", _IBANS)}
PHONE_DIGITS: Final = range(8, 16)
CARD_DIGITS: Final = range(13, 20)


@dataclass(frozen=True, slots=True)
class Span:
    """Characters [start, end) of a text that contain a value of this kind."""

    kind: Kind
    start: int
    end: int


def no_spans(_: str) -> Iterable[Span]:
    """The default recogniser: without a model, only values with a fixed shape are recognised."""
    return ()


def find_spans(
    text: str,
    kinds: Collection[Kind] = KINDS,
    recognise: Callable[[str], Iterable[Span]] = no_spans,
) -> list[Span]:
    """Find the values of these kinds, in order of position. Of overlapping values, keep the first.

    `recognise` finds values without a fixed shape, such as names.
    """
    spans = list(recognise(text))
    for members, finder in FINDERS:
        if not members.isdisjoint(kinds):
            spans += finder(text)
    spans.sort(key=lambda span: (span.start, -span.end))
    kept: list[Span] = []
    for span in spans:
        if span.kind in kinds and (not kept or span.start >= kept[-1].end):
            kept.append(span)
    return kept


def mask(
    text: str,
    kinds: Collection[Kind] = KINDS,
    recognise: Callable[[str], Iterable[Span]] = no_spans,
) -> str:
    """Replace every value of these kinds by its kind in brackets, as in "write to [email]"."""
    pieces: list[str] = []
    at = 0
    for span in find_spans(text, kinds, recognise):
        pieces += (text[at : span.start], f"[{span.kind}]")
        at = span.end
    return "".join((*pieces, text[at:])) if pieces else text


def _secrets(text: str) -> Iterator[Span]:
    if not any(prefix in text for prefix in KEY_PREFIXES):
        return
    at = 0
    while match := SECRET.search(text, at):
        at = match.end()
        if match[0].startswith("-----"):
            end = PEM_END.search(text, at)
            at = end.end() if end else len(text)
        yield Span("secret", match.start(), at)


def _emails(text: str) -> Iterator[Span]:
    if "@" not in text:
        return
    for match in DOMAIN.finditer(text):
        before = text[max(0, match.start() - LOCAL_CHARS_MAX) : match.start()]
        local = len(before) - len(before.rstrip(LOCAL))
        if local:
            yield Span("email", match.start() - local, match.end())


def _ibans(text: str) -> Iterator[Span]:
    for match in IBAN.finditer(text):
        size = IBAN_CHARS.get(match[0][:2], 0)
        end = _end_of_chars(match[0], size)
        if end and is_iban(match[0][:end]):
            yield Span("iban", match.start(), match.start() + end)


def _end_of_chars(text: str, count: int) -> int:
    """The end index of the first `count` characters other than spaces; 0 if there are fewer."""
    seen = 0
    for at, char in enumerate(text):
        seen += char != " "
        if seen == count:
            return at + 1
    return 0


def is_iban(text: str) -> bool:
    """True if a text is a valid IBAN (ISO 13616): the country's length, and 1 modulo 97."""
    compact = text.replace(" ", "")
    if len(compact) != IBAN_CHARS.get(compact[:2]):
        return False
    return int("".join(str(int(char, 36)) for char in compact[4:] + compact[:4])) % 97 == 1


def _addresses(text: str) -> Iterator[Span]:
    for pattern, separator in ((IPV4, "."), (IPV6, ":")):
        if text.count(separator) < 2:
            continue
        for match in pattern.finditer(text):
            if is_ip_address(match[0]):
                yield Span("ip", *match.span())


def is_ip_address(text: str) -> bool:
    """True if a text is an IP address other than a loopback or unspecified address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


def _numbers(text: str) -> Iterator[Span]:
    for match in NUMBER.finditer(text):
        kind = classify_number(match[0])
        if kind is not None:
            yield Span(kind, *match.span())


def classify_number(number: str) -> Kind | None:
    """The kind of a run of digits and separators; None for an ordinary number."""
    digits = NOT_DIGITS.sub("", number)
    if SSN.fullmatch(number):
        return "ssn"
    if len(digits) in CARD_DIGITS and CARD.fullmatch(number) and luhn(digits):
        return "card"
    if len(digits) in PHONE_DIGITS and PHONE.fullmatch(number):
        return "phone"
    return None


def luhn(digits: str) -> bool:
    """True if the check digit is right (Luhn, ISO/IEC 7812-1): the sum is a multiple of ten."""
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit) << (index & 1)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


Finder: TypeAlias = Callable[[str], Iterator[Span]]
FINDERS: Final[tuple[tuple[frozenset[Kind], Finder], ...]] = (
    (frozenset({"secret"}), _secrets),
    (frozenset({"email"}), _emails),
    (frozenset({"iban"}), _ibans),
    (frozenset({"ip"}), _addresses),
    (NUMBERS, _numbers),
)
