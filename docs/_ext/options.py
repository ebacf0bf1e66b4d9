"""Option tables of the command line, read from the program at every build.

A page has ``{command-options}`` where the tables belong: one section per command.
"""

from __future__ import annotations

from typing import Any

import click
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx


def program() -> click.Group:
    """Return the application as click sees it."""
    import typer.main

    from dualpca.app.cli import build

    found = typer.main.get_command(build())
    assert hasattr(found, "commands")
    return found  # type: ignore[return-value]


def shown(command: Any) -> list[Any]:
    """Return the arguments and options of a command that its help lists."""
    return [p for p in command.params if not getattr(p, "hidden", False)]


def cells(param: Any) -> tuple[list[str], str, str]:
    """Return the names of an argument or option, what it holds by default, and what it does."""
    if param.param_type_name == "argument":
        names = [(param.metavar or param.name).upper()]
    else:
        names = [*param.opts, *param.secondary_opts]
    value = param.default() if callable(param.default) else param.default
    if param.required:
        default = "required"
    elif value is None or value is False or isinstance(value, tuple | list):
        default = ""
    else:
        default = "on" if value is True else str(value)
    return names, default, " ".join((getattr(param, "help", None) or "").split())


class CommandOptions(Directive):
    """One section per command: what it does, then a table of its arguments and options."""

    has_content = False

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        sections: list[nodes.Node] = []
        for name, command in program().commands.items():
            section = nodes.section(ids=[f"dualpca-{name}"], names=[f"dualpca-{name}"])
            title = nodes.title()
            title += nodes.literal(text=f"dualpca {name}")
            section += [title, *paragraphs(command.help or "")]
            section += table(("option", "default", "meaning"), [cells(p) for p in shown(command)])
            self.state.document.note_explicit_target(section)
            sections.append(section)
        return sections


def paragraphs(text: str) -> list[nodes.paragraph]:
    """Return plain paragraphs, with `code` between backquotes."""
    blocks = [" ".join(block.split()) for block in text.split("\n\n")]
    return [nodes.paragraph("", "", *inline(block)) for block in blocks if block]


def inline(text: str) -> list[nodes.Node]:
    """Return text with what stands between backquotes as code."""
    return [
        nodes.literal(text=part) if k % 2 else nodes.Text(part)
        for k, part in enumerate(text.split("`"))
        if part
    ]


def table(head: tuple[str, ...], rows: list[tuple[list[str], str, str]]) -> nodes.table:
    """Return a table of names, default and meaning."""
    group = nodes.tgroup(cols=3)
    group += [nodes.colspec(colwidth=width) for width in (30, 12, 58)]
    top, body = nodes.thead(), nodes.tbody()
    top += row([[nodes.Text(word)] for word in head])
    for names, default, meaning in rows:
        listed: list[nodes.Node] = []
        for k, name in enumerate(names):
            listed += [nodes.Text(", ")] * bool(k) + [nodes.literal(text=name)]
        body += row([listed, inline(default), inline(meaning)])
    group += [top, body]
    found = nodes.table("", group, classes=["command-options"])
    return found


def row(contents: list[list[nodes.Node]]) -> nodes.row:
    """Return one row of a table."""
    found = nodes.row()
    for content in contents:
        found += nodes.entry("", nodes.paragraph("", "", *content))
    return found


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("command-options", CommandOptions)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
