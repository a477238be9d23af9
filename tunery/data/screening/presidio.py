"""Recognises names of people and places with Microsoft Presidio (MIT) and a spaCy model.

Presidio is installed with the extra `pii`. PRESIDIO_SPACY_MODEL names the package or the folder of
the spaCy model; nothing is downloaded. It processes about 30 texts of 1 kB per second and core.
"""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from tunery.data.personal import Kind, Span
from tunery.data.screening.operator_models import ModelUnusable

LANGUAGE: Final = "en"
MODEL: Final = "en_core_web_md"
KINDS: Final[dict[str, Kind]] = {"PERSON": "person", "LOCATION": "place"}


def recognise(text: str) -> Iterator[Span]:
    """Yield the spans of kinds `person` and `place`.

    Raises `ModelUnusable` when Presidio or its spaCy model is not installed.
    """
    for result in load_analyzer().analyze(text, language=LANGUAGE, entities=list(KINDS)):
        yield Span(KINDS[result.entity_type], result.start, result.end)


@cache
def load_analyzer() -> Any:
    """Load Presidio's analyzer once.

    Raises `ModelUnusable` when Presidio or its spaCy model is not installed.
    """
    name = os.environ.get("PRESIDIO_SPACY_MODEL", MODEL)
    try:
        import spacy
        from presidio_analyzer import AnalyzerEngine
        from presidio_analyzer.nlp_engine import NlpEngineProvider
    except ImportError as error:
        raise ModelUnusable(
            "presidio is not installed: install tunery's extra `pii`, or name another model"
        ) from error
    if not (spacy.util.is_package(name) or Path(name).is_dir()):  # presidio would download it
        raise ModelUnusable(
            f"spaCy has no model {name!r}: install its package, or set PRESIDIO_SPACY_MODEL to "
            "the name or folder of another one"
        )
    models = [{"lang_code": LANGUAGE, "model_name": name}]
    configuration = {"nlp_engine_name": "spacy", "models": models}
    engine = NlpEngineProvider(nlp_configuration=configuration).create_engine()
    return AnalyzerEngine(nlp_engine=engine, supported_languages=[LANGUAGE])
