"""A report as one self-contained HTML file: figures, style and script inside, nothing fetched."""

from dualpca.atomic import target_of as check_target
from dualpca.report.figures import Plot
from dualpca.report.page import Page, Section, Several, Table, Tile, Tiles, render
from dualpca.report.subject import ReportError
from dualpca.report.writing import build, subject_of, write, write_text

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
