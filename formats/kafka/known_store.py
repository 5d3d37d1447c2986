"""One store: its partitions, its form, and which parts of the form are guessed, with the evidence."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from statestore.formats.errors import StateStoreError
from statestore.formats.kafka.columns.store_form import StoreForm, StoreKind
from statestore.formats.kafka.columns.store_kinds import KINDS, row_schema
from statestore.formats.kafka.directory.applications import Application, StorePartition
from statestore.formats.kafka.directory.store_facts import generation_of
from statestore.formats.kafka.schemas.schema_files import needs_sample, shown_serde, with_sample
from statestore.formats.kafka.store_settings import Given
from statestore.formats.kafka.stores.kind_detection import KindGuess, detect_kind
from statestore.formats.kafka.stores.samples import sample_store
from statestore.formats.kafka.stores.serde_guesses import SerdeGuess

RAW = "Bytes"
SERDES = ("key serde", "value serde")
UNKNOWN, UNKNOWN_KIND = "unknown", "key-value"
"""The kind by which a store is read of which nothing can be said: keys and values as they are."""


@dataclass(frozen=True)
class KnownStore:
    """A store of an application.

    ``facts`` are texts for users: what the kind and the serdes are, who said so, and the evidence of a guess.
    ``shown_kind`` is the kind for users: it says whether it is a guess. ``guessed`` are the facts of "kind" and SERDES
    that nobody has given: of the kind those that files do not prove, of serdes all.
    """

    name: str
    partitions: tuple[StorePartition, ...]
    form: StoreForm
    retention: int | None
    facts: Mapping[str, str]
    shown_kind: str
    guessed: frozenset[str] = frozenset()

    @property
    def is_known(self) -> bool:
        """Return whether the kind was given or could be guessed."""
        return self.shown_kind != UNKNOWN

    @property
    def kind(self) -> StoreKind:
        return KINDS[self.form.kind]


_guesses: dict[tuple[str, str, str], KindGuess] = {}
"""Guesses by path of the application, store, and generation of its files: questions that follow make none anew."""
_MOST_GUESSES = 256


def know_store(application: Application, name: str, given: Given) -> KnownStore:
    """Return what is given about a store, and guesses from its files for the rest."""
    partitions = tuple(each for each in application.partitions if each.store == name)
    return known_store(name, partitions, given, None if is_complete(given) else _guess(application, name, partitions))


def is_complete(given: Given) -> bool:
    """Return whether nothing of a store has to be guessed from its rows."""
    serdes = given.key_serde, given.value_serde
    return None not in (given.kind, *serdes) and not any(map(needs_sample, serdes))


def known_store(name: str, partitions: tuple[StorePartition, ...], given: Given, guess: KindGuess | None) -> KnownStore:
    """Return what is given about a store, and what is guessed for the rest; ``guess`` is None where all is given."""
    found = guess or KindGuess(given.kind, True, ())
    kind = given.kind or found.kind
    facts = {"kind": _stated(given.kind, found.kind, found.certain, "; ".join(found.evidence))}
    unknown = SerdeGuess(RAW, "the files do not show that the store is of this kind")
    fits = guess is not None and kind is not None and _alike(kind, guess.kind)
    guesses = found.serdes() if fits else (unknown, unknown)
    samples = (guess.keys, guess.values) if guess is not None and fits else ((), ())
    serdes = {}
    for what, name_given, each, sample in zip(
        SERDES, (given.key_serde, given.value_serde), guesses, samples, strict=True
    ):
        sampled = name_given and with_sample(name_given, itertools.chain(*sample))
        serdes[what] = sampled or each.name
        facts[what] = _stated(sampled and shown_serde(sampled), each.name, each.certain, each.evidence)
    form = StoreForm(kind or UNKNOWN_KIND, serdes[SERDES[0]], serdes[SERDES[1]], given.window_size)
    if "window_end" in row_schema(form).names:
        facts["window size"] = "not given, so window_end is null" if given.window_size is None else "given"
    shown = UNKNOWN if kind is None else kind if given.kind or found.certain else f"{kind} (guessed)"
    stated = {"kind": kind is not None and (given.kind is not None or found.certain)}
    stated |= zip(SERDES, (given.key_serde is not None, given.value_serde is not None), strict=True)
    guessed = frozenset(what for what, is_stated in stated.items() if not is_stated)
    return KnownStore(name, partitions, form, given.retention, facts, shown, guessed)


def _alike(kind: str, guess: str | None) -> bool:
    """Return whether keys and values of a kind lie where a guess has found them."""
    return guess is not None and KINDS[kind].rows == KINDS[guess].rows


def _guess(application: Application, name: str, partitions: tuple[StorePartition, ...]) -> KindGuess:
    try:
        databases = [database for each in partitions for database in each.databases]
        key = application.folder.path, name, generation_of(application.folder, databases)
    except StateStoreError:  # the sample reports it as a problem
        return detect_kind(sample_store(application, name))
    guess = _guesses.get(key)
    if guess is None:
        guess = _guesses[key] = detect_kind(sample_store(application, name))
        if len(_guesses) > _MOST_GUESSES:
            _guesses.pop(next(iter(_guesses)), None)
    return guess


def _stated(given: str | None, guess: str | None, certain: bool, evidence: str) -> str:
    if given is not None:
        return f"{given}, given"
    if guess is None:
        return f"unknown: {evidence}; read as bytes"
    return f"{guess}, {'found' if certain else 'guessed'}: {evidence}"
