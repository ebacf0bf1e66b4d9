"""The Gaussian copula: latent factors behind columns of any kind (theory 15).

In the order in which to read it:

- `propagation`: what rows know of their latent coordinates, and the posterior of the latents;
- `law`: `CopulaFactors`, the law of latent coordinates, and what it says of rows;
- `fitting`: `fit_copula` fits that law to rows;
- `choosing`: how many latents, and which ordinal columns have an order that does not matter;
- `regressions`: columns as smooth functions of the others, which one Gaussian cannot follow;
- `blending`: the copula and regressions, weighed by how they tell hidden entries;
- `columns`: margins that turn values into coordinates, `MixedModel`, and `fit_mixed` for tables.
"""

from dualpca.models.copula.choosing import choose_latents
from dualpca.models.copula.columns import MixedModel, fit_mixed
from dualpca.models.copula.fitting import CopulaRequest, fit_copula
from dualpca.models.copula.law import CopulaFactors
from dualpca.models.copula.propagation import LatentRows

__all__ = [
    "CopulaFactors",
    "CopulaRequest",
    "LatentRows",
    "MixedModel",
    "choose_latents",
    "fit_copula",
    "fit_mixed",
]
