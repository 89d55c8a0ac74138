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
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
# What scikit-learn adds to every estimator is in its own documentation.
autodoc_default_options = {
    "members": True,
    "exclude-members": "set_fit_request, set_score_request, set_transform_request, set_inverse_transform_request",
}
autodoc_typehints = "description"
nitpicky = False

html_theme = "furo"
html_title = f"spadeful {release}"
