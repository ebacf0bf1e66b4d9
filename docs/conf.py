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
    "excerpts",
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
html_show_search_summary = (
    False  # it would fetch pages, which a browser refuses on a disk: excerpts
)

myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence", "substitution"]
reproduced = stored(Path(__file__).parent / "_extra" / "reproduced")
myst_substitutions = {"release": release, "reproduced": measured(list(reproduced))}
myst_heading_anchors = 3
math_number_all = False
math_eqref_format = "({number})"
numfig = False

moved_pages = {  # old address: new one
    "command-line": "guide/command-line",
    "command-line-options": "reference/defaults#options-of-the-command-line",
    "design/index": "design/adding",
    "design/symbols": "notation#short-names-in-the-source",
    "explorer": "guide/report#the-explorer",
    "figures": "data#figures-of-the-literature",
    "kernel-search": "guide/kernel-pca#choosing-a-kernel",
    "model-files": "guide/saving",
    "onnx": "guide/saving",
    "report": "guide/report",
    "scale": "guide/large-data",
    "time": "guide/time-series",
    "guide/big-data": "guide/large-data",
    "guide/denoise": "guide/denoising",
    "guide/dimension": "guide/how-many-components",
    "guide/explorer": "guide/report#the-explorer",
    "guide/generate": "guide/generating",
    "guide/impute": "guide/missing-values",
    "guide/kernel": "guide/kernel-pca",
    "guide/kernel-search": "guide/kernel-pca#choosing-a-kernel",
    "guide/mixed": "guide/mixed-columns",
    "guide/outliers": "guide/monitoring",
    "guide/save": "guide/saving",
    "guide/sequences": "guide/time-series",
    "guide/supplementary": "guide/reduce#supplementary-columns-and-rows",
    "models/index": "start/which-model",
    "models/batch-unfolder": "reference/generated/dualpca.BatchUnfolder",
    "models/bayesian-pca": "reference/generated/dualpca.BayesianPCA",
    "models/cca": "reference/generated/dualpca.CCA",
    "models/copula-ppca": "reference/generated/dualpca.CopulaPPCA",
    "models/dual-ppca": "reference/generated/dualpca.DualPPCA",
    "models/factor-analysis": "reference/generated/dualpca.FactorAnalysis",
    "models/generator": "reference/generated/dualpca.Generator",
    "models/hidden-markov-pca": "reference/generated/dualpca.HiddenMarkovPCA",
    "models/hierarchical-ppca": "reference/generated/dualpca.HierarchicalPPCA",
    "models/imputer": "reference/generated/dualpca.Imputer",
    "models/kernel-cca": "reference/generated/dualpca.KernelCCA",
    "models/kernel-pca": "reference/generated/dualpca.KernelPCA",
    "models/kernel-search": "reference/generated/dualpca.KernelSearch",
    "models/mixture-ppca": "reference/generated/dualpca.MixturePPCA",
    "models/monitor": "reference/generated/dualpca.Monitor",
    "models/pca": "reference/generated/dualpca.PCA",
    "models/ppca": "reference/generated/dualpca.PPCA",
    "models/probabilistic-kernel-pca": "reference/generated/dualpca.ProbabilisticKernelPCA",
    "models/robust-ppca": "reference/generated/dualpca.RobustPPCA",
    "models/sequence-classifier": "reference/generated/dualpca.SequenceClassifier",
    "models/twin-kernel-pca": "reference/generated/dualpca.TwinKernelPCA",
    "start/digits": "guide/denoising",
    "theory/approximate": "theory/kernels#math-18",
    "theory/em": "theory/one-gaussian#math-3",
    "theory/generation": "theory/preimages#math-12",
    "theory/misprints": "theory/references#math-14",
    "theory/time": "theory/mixtures#math-10",
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
