"""The models, as fitted, and the functions that fit them.

A model is a frozen dataclass, whose fields and annotations are what `files` stores; a fit is a
function of a table and a request. Read in this order:

- `spiked`: PCA and probabilistic PCA, the closed form; `driver`: the one iteration that all other
  fits share; `selection`: how many components, from the rows themselves.
- Missing values: `incomplete` (EM), `completing` (refits; completed tables as people want them),
  `streaming` (in chunks, each seen once), `expanded` (complete rows with their products).
- Other noise: `factor`, `bayesian`, `robust`, `canonical` (two views; `kernel_canonical`, through
  their kernels), `copula` (columns of any kind).
- Several Gaussians: `emissions`, which `mixture` and `hidden_markov` share; `clusters` (where they
  begin), `chain` (through time), `kernel_space`.
- A process through time: `baseline` (what rows show), `monitoring` (charts, episodes, state),
  `run_lengths` (limits), `phase_one` (bad episodes; learning on).
- Kernels: `kernel`, `dual`, `probabilistic_kernel`, `twin`.

Others use each module's model, its request and the functions called `fit_…`.
"""
