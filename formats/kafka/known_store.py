"""What is known of one store: its partitions, its form, and which parts of the form are guessed, with the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from statestore.formats.kafka.columns.store_form import StoreForm, StoreKind
from statestore.formats.kafka.columns.store_kinds import KINDS, row_schema
from statestore.formats.kafka.directory.applications import Application, StorePartition
from statestore.formats.kafka.store_settings import Given
from statestore.formats.kafka.stores.kind_detection import KindGuess, detect_kind
from statestore.formats.kafka.stores.samples import sample_store
from statestore.formats.kafka.stores.serde_guesses import SerdeGuess

RAW = "Bytes"
SERDES = ("key serde", "value serde")
UNKNOWN_KIND = "key-value"
"""The kind by which a store is read of which nothing can be said: keys and values as they are."""


@dataclass(frozen=True)
class KnownStore:
    """A store of an application.

    ``facts`` are texts for users: what the kind and the serdes are, who said so, and the evidence of a guess.
    ``guessed``: some of it is a guess that could be wrong.
    """

    name: str
    partitions: tuple[StorePartition, ...]
    form: StoreForm
    retention: int | None
    facts: Mapping[str, str]
    guessed: bool

    @property
    def kind(self) -> StoreKind:
        return KINDS[self.form.kind]


def know_store(application: Application, name: str, given: Given) -> KnownStore:
    """Return what is given about a store, and guesses from its files for the rest."""
    partitions = tuple(each for each in application.partitions if each.store == name)
    complete = None not in (given.kind, given.key_serde, given.value_serde)
    guess = KindGuess(given.kind, True, ()) if complete else detect_kind(sample_store(application, name))
    kind = given.kind or guess.kind
    facts = {"kind": _stated(given.kind, guess.kind, guess.certain, "; ".join(guess.evidence))}
    fits = guess.kind == kind and kind is not None
    unknown = SerdeGuess(RAW, "the files do not show that the store is of this kind")
    guesses = guess.serdes() if fits and not complete else (unknown, unknown)
    serdes = {}
    for what, stated, found in zip(SERDES, (given.key_serde, given.value_serde), guesses, strict=True):
        serdes[what] = stated or found.name
        facts[what] = _stated(stated, found.name, found.certain, found.evidence)
    form = StoreForm(kind or UNKNOWN_KIND, serdes[SERDES[0]], serdes[SERDES[1]], given.window_size)
    if "window_end" in row_schema(form).names:
        facts["window size"] = "not given, so window_end is null" if given.window_size is None else "given"
    guessed = any(text.startswith("guessed") or "unknown" in text for text in facts.values())
    return KnownStore(name, partitions, form, given.retention, facts, guessed)


def _stated(given: str | None, guess: str | None, certain: bool, evidence: str) -> str:
    if given is not None:
        return f"{given}, given"
    if guess is None:
        return f"unknown: {evidence}; read as bytes"
    return f"{guess}, {'found' if certain else 'guessed'}: {evidence}"
