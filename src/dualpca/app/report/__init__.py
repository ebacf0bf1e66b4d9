"""A report as one self-contained HTML file: figures, style and script inside, nothing fetched."""

from dualpca.app.report.figures import Plot as Plot
from dualpca.app.report.page import Page as Page
from dualpca.app.report.page import Section as Section
from dualpca.app.report.page import Several as Several
from dualpca.app.report.page import Table as Table
from dualpca.app.report.page import Tile as Tile
from dualpca.app.report.page import Tiles as Tiles
from dualpca.app.report.page import render as render
from dualpca.app.report.subject import ReportError
from dualpca.app.report.subject import subject_of as subject_of
from dualpca.app.report.writing import build as build
from dualpca.app.report.writing import write
from dualpca.app.report.writing import write_text as write_text
from dualpca.data import target_of as check_target

__all__ = ["ReportError", "write"]
