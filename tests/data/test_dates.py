"""Dates and durations are refused in words: as numbers, a missing one would be −9.2e18."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from dualpca import PCA, PPCA, CopulaPPCA, Imputer

DAYS = pd.date_range("2020-01-01", periods=30).to_series(index=range(30))
DAYS[3] = pd.NaT
NUMBERS = np.random.default_rng(0).normal(size=(30, 2))


def frame(times: pd.Series) -> pd.DataFrame:
    return pd.DataFrame(NUMBERS, columns=["a", "b"]).assign(when=times)


TABLES = {
    "pandas dates": frame(DAYS),
    "pandas durations": frame(DAYS - DAYS[0]),
    "pandas zones": frame(DAYS.dt.tz_localize("UTC")),
    "pandas periods": frame(DAYS.dt.to_period("D")),
    "pandas objects": frame(DAYS).astype(object),
    "numpy dates": np.stack([DAYS.to_numpy()] * 3, axis=1),
    "numpy durations": np.stack([(DAYS - DAYS[0]).to_numpy()] * 3, axis=1),
    "polars dates": pl.from_pandas(frame(DAYS)),
    "polars durations": pl.from_pandas(frame(DAYS - DAYS[0])),
    "polars times": pl.from_pandas(frame(DAYS)).with_columns(pl.col("when").dt.time()),
}


@pytest.mark.parametrize(
    "model", [PCA(1), PPCA(1), CopulaPPCA(1), Imputer()], ids=lambda m: repr(m)
)
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_dates_are_refused_by_name(model, table):
    where = "X" if isinstance(table, np.ndarray) else "column 'when'"
    with pytest.raises(TypeError, match=f"{where}.*dates and durations.*Turn them into numbers"):
        model.fit(table)


def test_dates_are_refused_after_the_fit_too():
    model = PPCA(1).fit(frame(DAYS)[["a", "b"]].assign(when=np.arange(30.0)))
    with pytest.raises(TypeError, match="column 'when'"):
        model.transform(frame(DAYS))


def test_a_plan_of_polars_is_to_be_collected():
    lazy = pl.DataFrame(NUMBERS).lazy()
    for model in (PCA(1), PPCA(1), CopulaPPCA(1), Imputer()):
        with pytest.raises(TypeError, match=r"LazyFrame.*collect\(\)"):
            model.fit(lazy)
