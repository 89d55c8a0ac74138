"""Problems are frozen values that check themselves."""

from dataclasses import FrozenInstanceError
from fractions import Fraction

import numpy as np
import pytest

import spadeful as sp


def test_problems_are_values():
    assert sp.Partial(0.5) == sp.Partial(mass=0.5) != sp.Partial(0.25)
    assert sp.Balanced() == sp.Balanced()
    assert len({sp.Partial(0.5), sp.Partial(0.5), sp.Balanced()}) == 2
    assert repr(sp.Partial(mass=0.5)) == "Partial(mass=0.5, reg=0.0)"


def test_problems_do_not_change():
    problem = sp.Partial(0.5)
    with pytest.raises(FrozenInstanceError):
        problem.mass = 0.75


@pytest.mark.parametrize("mass", [0.25, np.float32(0.25), np.float64(0.25), Fraction(1, 4)])
def test_mass_is_any_real_number(mass):
    assert sp.Partial(mass).mass == 0.25
    assert type(sp.Partial(mass).mass) is float


@pytest.mark.parametrize("mass", [1, np.nextafter(1, 0), np.nextafter(1, 2), sum([0.1] * 10), 1 + 1e-15])
def test_mass_within_rounding_of_one_is_one(mass):
    assert sp.Partial(mass).mass == 1.0


@pytest.mark.parametrize("mass", [0, -0.5, 1.3, 1 + 1e-12, np.nan, np.inf, -np.inf])
def test_mass_out_of_range_is_refused(mass):
    with pytest.raises(ValueError, match=r"'mass' parameter of Partial must be in \(0, 1\]\. Got .* instead"):
        sp.Partial(mass)


@pytest.mark.parametrize("mass", [None, "0.5", True, 0.5j, [0.5], np.array([0.5])])
def test_mass_that_is_no_number_is_refused(mass):
    with pytest.raises(TypeError, match=r"'mass' parameter of Partial must be a number in \(0, 1\]"):
        sp.Partial(mass)
