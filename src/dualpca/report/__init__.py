"""One self-contained HTML file: pictures and style inside, nothing fetched from anywhere."""

from dualpca.report.files import check_target, write_text
from dualpca.report.page import Page, Picture, Section, Table, render

__all__ = ["Page", "Picture", "Section", "Table", "check_target", "render", "write_text"]
