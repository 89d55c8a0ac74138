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


@pytest.mark.parametrize("make", [sp.Balanced, lambda reg: sp.Partial(0.5, reg), lambda reg: sp.Unbalanced(1.0, reg)])
class TestReg:
    """The same rule for every problem."""

    @pytest.mark.parametrize("reg", [0, 0.25, np.float32(0.25), Fraction(1, 4), 1e-300, 1e300])
    def test_any_finite_number_from_0_on(self, make, reg):
        assert make(reg).reg == reg
        assert type(make(reg).reg) is float

    @pytest.mark.parametrize("reg", [-1e-9, np.nan, np.inf, -np.inf])
    def test_out_of_range_is_refused(self, make, reg):
        with pytest.raises(ValueError, match=r"'reg' parameter of \w+ must be finite and at least 0\. Got .* instead"):
            make(reg)

    @pytest.mark.parametrize("reg", [None, "0.5", True, 0.5j, [0.5], np.array([0.5])])
    def test_no_number_is_refused(self, make, reg):
        with pytest.raises(TypeError, match=r"'reg' parameter of \w+ must be a number of at least 0\. Got"):
            make(reg)


def test_unbalanced_problems_are_values():
    assert sp.Unbalanced(0.5) == sp.Unbalanced(tau=0.5, reg=0.0, divergence="kl", entropy="plain")
    assert len({sp.Unbalanced(0.5), sp.Unbalanced(0.5), sp.Unbalanced(0.5, divergence="tv")}) == 2
    assert sp.Unbalanced(0.5).taus == (0.5, 0.5)
    assert sp.Unbalanced((0.5, 2)).taus == (0.5, 2)


@pytest.mark.parametrize("tau", [0, -1.0, np.nan, np.inf, (1.0, 0.0), (np.nan, 1.0), (1.0, np.inf)])
def test_tau_out_of_range_is_refused(tau):
    with pytest.raises(ValueError, match=r"'tau' parameter of Unbalanced must be finite and above 0\. Got .* instead"):
        sp.Unbalanced(tau)


@pytest.mark.parametrize("tau", [None, "1", True, 1j, (), (1.0,), (1.0, 1.0, 1.0), (1.0, None), ("1", 1.0)])
def test_tau_that_is_no_number_or_pair_is_refused(tau):
    with pytest.raises(TypeError, match=r"'tau' parameter of Unbalanced must be a number or a pair\. Got .* instead"):
        sp.Unbalanced(tau)


@pytest.mark.parametrize("name", ["divergence", "entropy"])
@pytest.mark.parametrize("choice", ["KL", "l2", "", None, 1])
def test_unknown_choices_are_refused(name, choice):
    with pytest.raises(ValueError, match=rf"'{name}' parameter of Unbalanced must be '\w+' or '\w+'\. Got .* instead"):
        sp.Unbalanced(1.0, **{name: choice})
