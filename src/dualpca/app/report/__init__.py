"""A report as one self-contained HTML file: figures, style and script inside, nothing fetched."""

from dualpca.app.report.figures import Plot
from dualpca.app.report.page import Page, Section, Several, Table, Tile, Tiles, render
from dualpca.app.report.subject import ReportError, subject_of
from dualpca.app.report.writing import build, write, write_text
from dualpca.data import target_of as check_target

__all__ = [
    "Page",
    "Plot",
    "ReportError",
    "Section",
    "Several",
    "Table",
    "Tile",
    "Tiles",
    "build",
    "check_target",
    "render",
    "subject_of",
    "write",
    "write_text",
]
