"""Optimal transport, one spadeful at a time: exact, partial and mini-batch.

>>> import spadeful as sp
>>> sp.__version__.count(".")
2
"""

# Names that need only NumPy and SciPy are imported here, from the modules that define them. Names that need
# torch, scikit-learn or matplotlib go through __getattr__, so that importing the package stays quick and
# works without them. A function that shares its module's name has to be imported here: importing the module
# binds the name to the module, and __getattr__ would never be asked.

from __future__ import annotations

__all__ = ["__version__"]

__version__: str


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("spadeful")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
