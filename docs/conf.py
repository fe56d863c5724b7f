"""How these pages are built; `make docs` does it, with warnings as errors."""

import sys
from importlib.metadata import version as installed
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))
torch.set_num_threads(1)  # the examples are small: more threads are slower

project = "taut"
author = "The taut authors"
project_copyright = author
version = release = installed("taut")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "capabilities",
    "commands",
    "docstrings",
    "mathml",
    "measurements",
    "results",
    "summaries",
]
exclude_patterns = ["_build", "gallery"]
default_role = "py:obj"  # what is in backticks is a link where there is something to link to

html_theme = "furo"
html_title = "taut"
html_static_path = ["_static"]
html_css_files = ["taut.css"]
html_favicon = "_static/icon.svg"
html_math_renderer = "mathml"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    f"{theme}_css_variables": {
        "color-brand-primary": blue,
        "color-brand-content": blue,
        "color-worse": orange,
    }
    for theme, blue, orange in (("light", "#0072b2", "#b04a00"), ("dark", "#56b4e9", "#e69f00"))
}
pygments_style = "a11y-high-contrast-light"  # comes with furo
pygments_dark_style = "monokai"

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # those of torch are torch's
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "exclude-members": "extra_repr"}
python_maximum_signature_line_length = 80
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_attr_annotations = False  # the signature has them
napoleon_custom_sections = ["Shape"]
toc_object_entries_show_parents = "hide"

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "scraper.ByNumber",
    "image_scrapers": ("scraper.taut_figures",),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 10**9,  # how long it took here says nothing of there
}


def _make_accessible(app, pagename, templatename, context, doctree):
    # What is wider than the page scrolls by the arrow keys only where it can have the focus.
    body = context.get("body", "")
    for start in ('<div class="table-wrapper', '<div class="math', "<pre"):
        tag = start.partition(" ")[0]
        body = body.replace(start, f'{tag} tabindex="0"{start.removeprefix(tag)}')
    body = body.replace('<span class="pre">--', '<span class="pre flag">--')
    # Sphinx gives captions of contents no level, and parameters of long signatures no terms.
    body = body.replace(' role="heading">', ' role="heading" aria-level="2">')
    context["body"] = body.replace("<dl>\n<dd>", '<dl role="presentation">\n<dd>')


def setup(app):
    """Connects what this file alone needs."""
    app.connect("html-page-context", _make_accessible)
