"""Properties that Hypothesis tries: with a few examples in every run, with many where slow tests are run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

from support.parameters import many_examples

Test = Callable[..., None]


def few_or_many(few: int, many: int, *drawn: Any, **named: Any) -> Callable[[Test], Test]:
    """Make two tests of a property: one of ``few`` examples, and a slow one of ``many``.

    The ``drawn`` values are passed to the last parameters, as with Hypothesis' ``given``; the others are fixtures of
    pytest.
    """

    def both(holds: Test) -> Test:
        def test(examples: int, **fixtures: Any) -> None:
            settings(max_examples=examples, deadline=None)(given(**every)(holds))(**fixtures)

        parameters = list(inspect.signature(holds).parameters.values())
        last = [parameter.name for parameter in parameters[len(parameters) - len(drawn) :]]
        every = named | dict(zip(last, drawn, strict=True))
        kept = [parameter for parameter in parameters if parameter.name not in every]
        examples = inspect.Parameter("examples", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        test.__signature__ = inspect.Signature([examples, *kept])  # type: ignore[attr-defined]
        test.__name__, test.__qualname__ = holds.__name__, holds.__qualname__
        test.__module__, test.__doc__ = holds.__module__, holds.__doc__
        test.__dict__.update({name: value for name, value in vars(holds).items() if name == "pytestmark"})
        twice: Test = pytest.mark.parametrize(
            "examples", [few, pytest.param(many_examples(few, many), marks=pytest.mark.slow)]
        )(test)
        return twice

    return both
