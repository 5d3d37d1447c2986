"""Names of columns that must differ get numbers, in the forms that tables, views and JSON publish."""

from __future__ import annotations

from statestore.formats.values.unique_names import unique_names


def test_repeated_names_get_numbers() -> None:
    assert unique_names(["f", "f", "f", "g"]) == ["f", "f_1", "f_2", "g"]


def test_case_tells_no_names_apart_unless_it_counts() -> None:
    assert unique_names(["a", "A", "a"]) == ["a", "A_1", "a_2"]
    assert unique_names(["a", "A", "a"], ignore_case=False) == ["a", "A", "a_1"]


def test_a_number_is_skipped_where_a_name_has_it() -> None:
    assert unique_names(["a", "a_1", "a"]) == ["a", "a_1", "a_2"]
    assert unique_names(["a", "a", "a_1"]) == ["a", "a_1", "a_1_1"]


def test_views_count_from_two_and_leave_taken_names() -> None:
    assert unique_names(["a", "A", "__PIN"], taken=("__pin",), first=2) == ["a", "A_2", "__PIN_2"]
