"""Sphinx settings."""

from importlib.metadata import version as installed_version

project = "spadeful"
author = "The spadeful authors"
version = release = installed_version("spadeful")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
# The examples are run, and shown with their pictures.
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "show_signature": False,
    "abort_on_example_error": True,
}
myst_enable_extensions = ["dollarmath", "colon_fence"]
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
nitpicky = False

html_theme = "furo"
html_title = f"spadeful {release}"
