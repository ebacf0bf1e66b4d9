"""How the documentation is built: `make docs`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import dualpca

project = "dualpca"
author = "the dualpca developers"
copyright = "the dualpca developers"
version = release = dualpca.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "figures",
    "sections",
    "measured",
]
exclude_patterns = ["_build", "gallery/GALLERY_HEADER.rst"]
nitpicky = False
html_theme = "furo"
html_title = "dualpca"
html_static_path = ["_static"]
html_css_files = ["dualpca.css"]
html_math_renderer = "mathml"
templates_path = ["_templates"]
html_extra_path = ["_extra"]
html_show_search_summary = False  # it would fetch pages, which a browser refuses on a disk

myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
math_number_all = False
math_eqref_format = "({number})"
numfig = False

autosummary_generate = True
autodoc_default_options = {"members": True, "inherited-members": True}
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": "/plot_",
    "abort_on_example_error": True,
    "matplotlib_animations": False,
    "download_all_examples": False,
    "show_memory": False,
    "plot_gallery": "True",
    "remove_config_comments": True,
    "thumbnail_size": (400, 280),
    "write_computation_times": False,
    "image_scrapers": ("matplotlib", "figures.scrape"),
}
