"""How the documentation is built: `make docs`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import dualpca
from dualpca.app.experiments.running import measured, stored

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
    "pictures",
    "redirects",
    "options",
]
exclude_patterns = ["_build", "gallery/GALLERY_HEADER.rst"]
nitpicky = False
default_role = "py:obj"  # `PPCA` in a docstring is a link, or code where there is no page
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_theme = "furo"
html_title = f"dualpca {release}"
html_static_path = ["_static"]
html_css_files = ["dualpca.css"]
html_math_renderer = "mathml"
templates_path = ["_templates"]
html_extra_path = ["_extra"]
html_show_search_summary = False  # it would fetch pages, which a browser refuses on a disk

myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence", "substitution"]
reproduced = stored(Path(__file__).parent / "_extra" / "reproduced")
myst_substitutions = {"release": release, "reproduced": measured(list(reproduced))}
myst_heading_anchors = 3
math_number_all = False
math_eqref_format = "({number})"
numfig = False

moved_pages = {  # old address: new one
    "command-line": "guide/command-line",
    "explorer": "guide/explorer",
    "kernel-search": "guide/kernel-search",
    "model-files": "guide/saving",
    "onnx": "guide/saving",
    "report": "guide/report",
    "scale": "guide/large-data",
    "time": "guide/time-series",
    "guide/big-data": "guide/large-data",
    "guide/denoise": "guide/denoising",
    "guide/dimension": "guide/how-many-components",
    "guide/generate": "guide/generating",
    "guide/impute": "guide/missing-values",
    "guide/kernel": "guide/kernel-pca",
    "guide/mixed": "guide/mixed-columns",
    "guide/outliers": "guide/monitoring",
    "guide/save": "guide/saving",
    "guide/sequences": "guide/time-series",
    "start/digits": "guide/denoising",
}

autosummary_generate = True
autosummary_context = {
    "not_ours": ("get_metadata_routing", "get_params", "set_output", "set_params", "count", "index")
}
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
}
