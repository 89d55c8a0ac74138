"""Sphinx settings."""

from importlib.metadata import version as installed_version

project = "spadeful"
author = "The spadeful authors"
version = release = installed_version("spadeful")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
nitpicky = False

html_theme = "furo"
html_title = f"spadeful {release}"
