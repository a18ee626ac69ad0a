"""Keys that do not fit together are refused with the key, its value and what is allowed."""

from __future__ import annotations

import pytest

from fedsynth.core.errors import UserError
from fedsynth.experiment.config import parse_overrides, resolve
from fedsynth.methods.registry import all_methods


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["epsilon=inf"], r"epsilon=inf: psg is a private method.*a reference: .*upper_bound"),
        (["epsilon=10001"], r"epsilon=10001 must be at most 10,000 for psg"),
        (["extensions=inversion"], r"unknown extension 'inversion'"),
        (["ray_tools=timelin"], r"unknown tool of Ray 'timelin'\. Did you mean 'timeline'"),
        (["ray_tools=timeline", "engine=flower"], r"is for engine=ray only, not flower"),
        (["unit=user", "method=dp_kernel"], r"unit=user"),
    ],
)
def test_keys_that_do_not_fit_are_refused(words: list[str], message: str) -> None:
    given = {"data": "shapes", "method": "psg"} | dict(word.split("=", 1) for word in words)
    with pytest.raises(UserError, match=message) as caught:
        resolve(parse_overrides([f"{key}={value}" for key, value in given.items()]))
    assert "\n" not in str(caught.value)


def test_the_largest_epsilon_and_references_without_end_are_taken() -> None:
    words = ["data=shapes", "ray_tools=timeline", "epsilon=10000", "method=psg"]
    assert resolve(parse_overrides(words)).run.ray_tools == ("timeline",)
    reference = next(name for name, each in all_methods().items() if not each.private)
    assert resolve(parse_overrides(["data=shapes", f"method={reference}"])).run.method
