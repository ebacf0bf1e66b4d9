"""Text, dates and durations where numbers are needed are refused by column, with a remedy."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dualpca
from dualpca import CCA, PCA, PPCA, CopulaPPCA, Imputer

A = np.random.default_rng(0).normal(size=(30, 2))
CODES = [f"A{i % 3}" for i in range(30)]
FRAME = pd.DataFrame({"height": A[:, 0], "code": CODES, "width": A[:, 1]})
TABLES = {
    "pandas": FRAME,
    "pandas categories": FRAME.assign(code=FRAME["code"].astype("category")),
    "pandas objects": FRAME.astype(object),
    "polars": pl.DataFrame({name: FRAME[name].tolist() for name in FRAME}),
    "Arrow": pa.table({name: FRAME[name].tolist() for name in FRAME}),
    "objects": FRAME.to_numpy(),
    "text": np.array(FRAME.to_numpy().tolist()),
    "lists": FRAME.to_numpy().tolist(),
}
ESTIMATORS = {
    name: getattr(dualpca, name)
    for name in dualpca.__all__
    if hasattr(getattr(dualpca, name), "get_params")
}
OTHERS = {
    "CopulaPPCA": "it accepts categories",
    "Generator": "it fits another estimator, which refuses",
}
REMEDY = r"CopulaPPCA.*Imputer\(model='copula'\).*OneHotEncoder"


def test_every_estimator_is_tried():
    assert len(ESTIMATORS) >= 16 and set(OTHERS) <= set(ESTIMATORS)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - set(OTHERS)))
def test_text_is_refused_by_column_with_what_to_use(name, kind):
    if name == "Imputer" and kind.startswith("p"):
        assert isinstance(Imputer().fit(TABLES[kind]).model_, CopulaPPCA)  # frames have kinds
        return
    column = "'code'" if kind.startswith(("p", "A")) else "column 1 of X"
    y = {"CCA": A, "SequenceClassifier": CODES}.get(name)
    with pytest.raises(ValueError, match=rf"numeric, got {column} .*'A0', 'A1', 'A2'.*{REMEDY}"):
        ESTIMATORS[name]().fit(TABLES[kind], y)


def test_text_is_refused_after_the_fit_and_in_a_second_table_too():
    model = PPCA(1).fit(FRAME.assign(code=np.arange(30.0)))
    with pytest.raises(ValueError, match=f"'code' .*{REMEDY}"):
        model.transform(FRAME)
    with pytest.raises(ValueError, match=f"'code' .*{REMEDY}"):
        CCA(1).fit(A, FRAME)


def test_what_the_error_names_accepts_the_table():
    assert CopulaPPCA(1).fit(FRAME).transform(FRAME).shape == (30, 1)
    assert Imputer(model="copula").fit_transform(FRAME).shape == (30, 3)


def test_only_columns_with_text_that_is_no_number_are_named():
    table = [[1.0, "2.5", "3,5", None], [2.0, "3.5", 1.0, 4.0]]
    with pytest.raises(ValueError, match=r"got column 2 of X \(text such as '3,5'\)\. "):
        PPCA(1).fit(table)


def test_numbers_written_as_text_are_read_as_ever():
    text = np.array(A.tolist()).astype(str)
    np.testing.assert_allclose(PPCA(1).fit(text).mean_, PPCA(1).fit(A).mean_)


DAYS = pd.date_range("2020-01-01", periods=30).to_series(index=range(30))
DAYS[3] = pd.NaT


NUMBERS = np.random.default_rng(0).normal(size=(30, 2))


def dated_frame(times: pd.Series) -> pd.DataFrame:
    return pd.DataFrame(NUMBERS, columns=["a", "b"]).assign(when=times)


DATED = {
    "pandas dates": dated_frame(DAYS),
    "pandas durations": dated_frame(DAYS - DAYS[0]),
    "pandas zones": dated_frame(DAYS.dt.tz_localize("UTC")),
    "pandas periods": dated_frame(DAYS.dt.to_period("D")),
    "pandas objects": dated_frame(DAYS).astype(object),
    "numpy dates": np.stack([DAYS.to_numpy()] * 3, axis=1),
    "numpy durations": np.stack([(DAYS - DAYS[0]).to_numpy()] * 3, axis=1),
    "polars dates": pl.from_pandas(dated_frame(DAYS)),
    "polars durations": pl.from_pandas(dated_frame(DAYS - DAYS[0])),
    "polars times": pl.from_pandas(dated_frame(DAYS)).with_columns(pl.col("when").dt.time()),
}


@pytest.mark.parametrize(
    "model", [PCA(1), PPCA(1), CopulaPPCA(1), Imputer()], ids=lambda m: repr(m)
)
@pytest.mark.parametrize("table", DATED.values(), ids=DATED)
def test_dates_are_refused_by_name(model, table):
    where = "X" if isinstance(table, np.ndarray) else "column 'when'"
    with pytest.raises(TypeError, match=f"{where}.*dates and durations.*Turn them into numbers"):
        model.fit(table)


def test_dates_are_refused_after_the_fit_too():
    model = PPCA(1).fit(dated_frame(DAYS)[["a", "b"]].assign(when=np.arange(30.0)))
    with pytest.raises(TypeError, match="column 'when'"):
        model.transform(dated_frame(DAYS))


def test_a_plan_of_polars_is_to_be_collected():
    lazy = pl.DataFrame(NUMBERS).lazy()
    for model in (PCA(1), PPCA(1), CopulaPPCA(1), Imputer()):
        with pytest.raises(TypeError, match=r"LazyFrame.*collect\(\)"):
            model.fit(lazy)
