"""Requests to the explorer and its answers, with every bound in the schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, create_model

from dualpca.app.explorer.session import Session
from dualpca.files.fields import visible

MOST_ROWS = 100_000
"""Most rows of one export."""

PAGE = 500
"""Most rows of one table."""

MOST_STEPS = 64
MOST_SAMPLES = 24
MOST_NUMBERS = 2_000_000
"""Most numbers in one answer: paths and samples of very wide rows have fewer steps."""


Way = Literal["learned", "smoother", "distance", "fixed-point", "gradient", "auto"]
"""Pre-image methods of kernel models."""


def whole(value: Any) -> Any:
    """Return 27.0 as 27: JSON makes no difference.

    Examples
    --------
    >>> whole(27.0), whole(2.5), whole("3")
    (27, 2.5, '3')
    """
    return int(value) if type(value) is float and value.is_integer() else value


def between(low: int, high: int) -> Any:
    """Return the type of whole numbers from low to high."""
    return Annotated[int, Field(ge=low, le=high), BeforeValidator(whole)]


def several(item: Any, least: int, most: int) -> Any:
    """Return the type of lists with a bounded number of items."""
    return Annotated[list[item], Field(min_length=least, max_length=most)]


Text = Annotated[str, AfterValidator(visible)]
"""Text of an answer, which a page shows."""


class Message(BaseModel):
    """A request; unknown fields and numbers that are not finite are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


class Answer(BaseModel):
    """An answer."""

    model_config = ConfigDict(extra="forbid")


class PointRequest(Message):
    """Decode a latent point."""

    latent: list[float]
    component: int = 0
    way: str | None = None


class PathRequest(Message):
    """Decode the line between two latent points."""

    start: list[float]
    end: list[float]
    steps: int = 32
    component: int = 0
    way: str | None = None


class RowsRequest(Message):
    """Show or export rows."""

    rows: list[int]
    component: int = 0


class ImputeRequest(Message):
    """Hide entries of a row and fill them again."""

    row: int
    hidden: list[int]


class SampleRequest(Message):
    """Sample rows."""

    count: int = 12
    seed: int = 0
    component: int = 0


class RowRequest(Message):
    """Compare a row with what the model expects."""

    row: int


class SearchRequest(Message):
    """Find rows by number, name or level."""

    text: Annotated[str, Field(min_length=1, max_length=200)]


class Words(Answer):
    """Why there is no answer."""

    error: Text


class Health(Answer):
    """Which run of the server this is."""

    run: Text


class ColumnAnswer(Answer):
    """A column to colour by."""

    name: Text
    kind: Text
    levels: list[Text]
    origin: Text
    reason: Text
    limit: float | None


class TimeAnswer(Answer):
    """The column that tells the time of rows."""

    name: Text
    kind: Text


class ComponentAnswer(Answer):
    """A latent space: of the model, or of one component of a mixture."""

    name: Text
    axes: list[Text]
    low: list[float]
    high: list[float]
    ratio: list[float] | None
    parent: int | None = None


class ModelAnswer(Answer):
    """What the page needs before it can draw."""

    run: Text
    version: Text
    model: Text
    source: Text
    rows: int
    identified: bool
    features: list[Text]
    levels: list[list[Text]]
    shape: Text
    size: list[int]
    components: list[ComponentAnswer]
    columns: list[ColumnAnswer]
    ways: list[Text]
    reasons: dict[str, Text]
    limit: float
    low: list[float]
    mean: list[float]
    high: list[float]
    spread: list[float]
    density: Text
    time: TimeAnswer | None
    color: Text | None
    level: float


class PointAnswer(Answer):
    """A decoded point."""

    values: list[float]
    std: list[float] | None
    log_density: float | None = None
    farther: float | None
    nearest: int | None
    nearest_id: Text | None
    distance: float | None


class PathAnswer(Answer):
    """Decoded points along a line."""

    latents: list[list[float]]
    values: list[list[float]]


class RowsAnswer(Answer):
    """Rows as a table: the cells as text, with latents and reconstruction errors."""

    columns: list[Text]
    cells: list[list[Text]]
    ids: list[Text]
    latents: list[list[float]]
    values: list[list[float | None]]
    errors: list[float] | None


class ErrorsAnswer(Answer):
    """Reconstruction errors of rows: how many were used, their mean, the largest.

    And the columns with the largest errors, each in its own standard deviations.
    """

    count: int
    mean: float
    largest: float
    columns: list[Text]
    by_column: list[float]


class ExpectedAnswer(Answer):
    """Entries of a row beside what the model expects, the most unusual first.

    `itself` is true where the expectation has seen the entry; `chance` is that of a level.
    """

    id: Text
    features: list[int]
    measured: list[float | None]
    expected: list[float | None]
    std: list[float | None]
    unusual: list[float | None]
    chance: list[float | None]
    itself: bool
    total: int


class DifferenceAnswer(Answer):
    """How selected rows differ from the others: numbers by their means, levels by their shares.

    Differences of means are in standard deviations within the groups; intervals hold together.
    """

    selected: int
    rest: int
    compared: int
    columns: list[Text]
    gap: list[float]
    low: list[float | None]
    high: list[float | None]
    inside: list[float]
    outside: list[float]
    levels: list[Text]
    share: list[float]
    share_rest: list[float]
    share_low: list[float]
    share_high: list[float]


class SearchAnswer(Answer):
    """Rows that were found, and what of them fits."""

    rows: list[int]
    ids: list[Text]
    where: list[Text]
    more: bool


class ImputeAnswer(Answer):
    """A row, and how it was filled."""

    id: Text
    truth: list[float | None]
    values: list[float]
    std: list[float] | None
    low: list[float | None] | None = None
    high: list[float | None] | None = None


class SampleAnswer(Answer):
    """Samples, with the closest rows."""

    values: list[list[float]]
    latents: list[list[float]]
    nearest: list[int | None]
    nearest_ids: list[Text | None]
    distance: list[float | None]
    beside: list[list[float | None] | None]


def limited(session: Session) -> dict[str, Any]:
    """Return the requests with the bounds of one session, for its schema."""
    sizes, d, n = session.lens.sizes, len(session.features), max(session.n, 1)
    number = Annotated[float, Field(ge=-session.limit, le=session.limit)]
    latent = several(number, min(sizes), max(sizes))
    component = (between(0, len(sizes) - 1), 0)
    way = (Way | None, None)
    row = between(0, n - 1)
    rows, page = several(row, 1, MOST_ROWS), several(row, 1, PAGE)
    hidden = several(between(0, d - 1), 0, d)
    most = max(2, min(MOST_STEPS, MOST_NUMBERS // d))
    steps = (between(2, most), min(32, most))
    count = max(1, min(MOST_SAMPLES, MOST_NUMBERS // (2 * d)))
    draws = (between(1, count), min(12, count))
    seed = (between(0, 2**31 - 1), 0)
    return {
        "point": _with(PointRequest, latent=latent, component=component, way=way),
        "path": _with(
            PathRequest, start=latent, end=latent, steps=steps, component=component, way=way
        ),
        "page": _with(RowsRequest, "PageRequest", rows=page, component=component),
        "export": _with(RowsRequest, "ExportRequest", rows=rows, component=component),
        "row": _with(RowRequest, row=row),
        "search": SearchRequest,
        "impute": _with(ImputeRequest, row=row, hidden=hidden),
        "sample": _with(SampleRequest, count=draws, seed=seed, component=component),
    }


def _with(base: type[Message], name: str | None = None, **fields: Any) -> type[Message]:
    whole: Any = {k: v if isinstance(v, tuple) else (v, ...) for k, v in fields.items()}
    return create_model(name or base.__name__, __base__=base, __doc__=base.__doc__, **whole)
