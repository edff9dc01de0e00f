"""Student's t against values computed elsewhere."""

from __future__ import annotations

import pytest

from nbkit.errors import NotEnoughDataError
from nbkit.statistics import student_t_quantile

# scipy 1.17.1: scipy.stats.t.ppf(probability, degrees_of_freedom)
SCIPY_QUANTILES = [
    (0.975, 1, 12.706204736174694),
    (0.975, 2, 4.302652729749462),
    (0.975, 3, 3.1824463052837078),
    (0.975, 4, 2.7764451051977934),
    (0.975, 4.7, 2.62072607535317),
    (0.975, 8, 2.306004135204166),
    (0.975, 29, 2.045229642132703),
    (0.975, 1000, 1.9623390808264083),
    (0.975, 0.5, 164.55767348048818),
    (0.995, 4, 4.604094871349992),
    (0.9, 2.5, 1.7302509288071766),
    (0.6, 7, 0.2631668613520229),
    (0.25, 6, -0.7175581964914126),
]


@pytest.mark.parametrize(("probability", "freedom", "expected"), SCIPY_QUANTILES)
def test_quantile_equals_scipys(probability, freedom, expected):
    assert student_t_quantile(probability, freedom) == pytest.approx(
        expected, rel=1e-12
    )


@pytest.mark.parametrize("arguments", [(0.0, 4), (1.0, 4), (1.2, 4), (0.975, 0)])
def test_quantile_outside_its_range_is_an_error_that_names_the_values(arguments):
    with pytest.raises(NotEnoughDataError, match=rf"\({arguments[0]}, {arguments[1]}"):
        student_t_quantile(*arguments)
