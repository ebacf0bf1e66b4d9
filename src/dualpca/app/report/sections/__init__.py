"""The report's sections, one idea each: a function from a subject to a section."""

from collections.abc import Callable

from dualpca.app.report.page import Section
from dualpca.app.report.sections import (
    calibrated,
    data,
    drawn,
    groups,
    latent,
    loadings,
    rebuilt,
    spectrum,
    unusual,
)
from dualpca.app.report.subject import Subject

SECTIONS: dict[str, Callable[[Subject], Section]] = {
    "What the data is": data.overview,
    "What is missing": data.holes,
    "How many directions matter": spectrum.section,
    "Where the rows lie": latent.section,
    "Groups or states": groups.section,
    "What the directions are made of": loadings.section,
    "Rows and columns together": loadings.biplot,
    "What the model keeps of each row": rebuilt.section,
    "What the model takes for typical": drawn.section,
    "Unusual rows": unusual.section,
    "Can its intervals be trusted?": calibrated.section,
}
"""In the order of the page, by the name that a section which does not apply is given."""

__all__ = ["SECTIONS"]
