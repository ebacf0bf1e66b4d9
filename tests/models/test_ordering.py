"""Ordered levels are told by their order, unless hidden entries say otherwise."""

import numpy as np
import pandas as pd

from dualpca import CopulaPPCA

SEASONS = ["spring", "summer", "autumn"]


def year(bent, n=150):
    """Return a table of seasons and what depends on them: hump-shaped, or rising."""
    rng = np.random.default_rng(0)
    season = rng.integers(3, size=n)
    heat = np.array([0.0, 2.0, 0.0] if bent else [-1.0, 0.0, 1.0])[season]
    X = pd.DataFrame({"season": pd.Categorical.from_codes(season, SEASONS, ordered=True)})
    for name in ("warm", "dry"):
        X[name] = heat + 0.7 * rng.normal(size=n)
    return X


def test_levels_in_the_order_of_other_columns_are_ordinal():
    assert CopulaPPCA().fit(year(bent=False)).column_kinds_["season"] == "ordinal"


def test_levels_in_another_order_are_nominal():
    X = year(bent=True)
    bent = CopulaPPCA().fit(X)
    assert bent.column_kinds_["season"] == "nominal"
    X["season"] = X["season"].where(X["season"] != "summer")  # hidden
    filled = bent.impute(X)
    assert filled["season"].dtype == X["season"].dtype  # it is an ordered category still
    hot = (filled["season"] == "summer")[X["season"].isna()]
    assert hot.mean() > 0.7  # by order alone a summer would never be found


def test_order_is_kept_where_it_is_asked_for():
    X = year(bent=True)
    for kind in ("ordinal", SEASONS):
        model = CopulaPPCA(column_kinds={"season": kind}).fit(X)
        assert model.column_kinds_["season"] == "ordinal"
    assert CopulaPPCA(1).fit(X).column_kinds_["season"] == "ordinal"  # nothing is chosen
