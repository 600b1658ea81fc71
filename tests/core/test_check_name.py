import pytest

from spark_cas.core.check_name import check_name
from spark_cas.core.errors import OptionError


@pytest.mark.parametrize("name", ["a", "load-1", "2024.01_final", "...", "-", "a" * 200])
def test_good_names_are_returned(name: str):
    assert check_name(name, "the job name") == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "a\\b", "a b", "a\n", "ä", "a" * 201, "../up", "a%2e", "nul\0", "$(x)", "a:b", "٣"],
)
def test_other_names_are_refused_without_being_shown(name: str):
    with pytest.raises(OptionError, match="the job name must be 1 to 200") as refused:
        check_name(name, "the job name")
    assert len(name) < 3 or name not in str(refused.value)
