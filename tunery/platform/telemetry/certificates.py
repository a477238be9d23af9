"""When the certificates end that a process is given as files: its own, and of whom it believes."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from cryptography import x509

from tunery.runtime.telemetry.catalogue import computed
from tunery.runtime.telemetry.figures import Source, StateValue

ENDS: Final = computed(
    "tunery_certificate_end_timestamp_seconds",
    "When the first certificate of a file ends, as a Unix time",
    ("setting",),
    "seconds",
)


def certificate_ends(files: Mapping[str, Path]) -> Source:
    """Return a source of gauges: the expiry of PEM files, labelled by the settings that name them.

    A file is read again once it has changed, because certificates are renewed in place.
    """
    known: dict[str, tuple[int, float]] = {}

    def tell() -> Iterator[StateValue]:
        for name, file in files.items():
            changed = file.stat().st_mtime_ns
            if name not in known or known[name][0] != changed:
                known[name] = (changed, first_end(file))
            yield StateValue(ENDS, (name,), known[name][1])

    return tell


def first_end(file: Path) -> float:
    """The earliest end of the certificates of a PEM file, as a Unix time.

    Raises OSError, ValueError.
    """
    certificates: Iterable[x509.Certificate] = x509.load_pem_x509_certificates(file.read_bytes())
    return min(certificate.not_valid_after_utc.timestamp() for certificate in certificates)
