"""Names of people and places by Presidio, which the tests' environment does not have."""

import sys
from types import SimpleNamespace

import pytest

from tunery.data.screening import operator_models, presidio
from tunery.data.screening.operator_models import ModelUnusable


def test_missing_presidio_is_reported_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    presidio.load_analyzer.cache_clear()
    monkeypatch.setitem(sys.modules, "presidio_analyzer", None)
    with pytest.raises(ModelUnusable, match="extra `pii`"):
        list(presidio.recognise("Ann lives in Oslo."))


def test_entities_of_presidio_become_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its load_analyzer is stood in for: the package is not a part of the tests' environment."""

    def analyze(text: str, language: str, entities: list[str]) -> list[SimpleNamespace]:
        assert (language, entities) == ("en", ["PERSON", "LOCATION"])
        return [SimpleNamespace(entity_type="LOCATION", start=13, end=17, score=0.85)]

    monkeypatch.setattr(presidio, "load_analyzer", lambda: SimpleNamespace(analyze=analyze))
    (span,) = operator_models.recognise("presidio", "Ann lives in Oslo.")
    assert (span.kind, span.start, span.end) == ("place", 13, 17)


def test_a_spacy_model_that_is_not_installed_is_named_and_not_downloaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    presidio.load_analyzer.cache_clear()
    spacy = SimpleNamespace(util=SimpleNamespace(is_package=lambda _: False))
    modules = {
        "spacy": spacy,
        "presidio_analyzer": SimpleNamespace(AnalyzerEngine=None),
        "presidio_analyzer.nlp_engine": SimpleNamespace(NlpEngineProvider=None),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("PRESIDIO_SPACY_MODEL", "no_such_model")
    with pytest.raises(ModelUnusable, match=r"no model 'no_such_model'.*PRESIDIO_SPACY_MODEL"):
        presidio.load_analyzer()
