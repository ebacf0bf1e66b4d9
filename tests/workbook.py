"""Workbooks as Excel writes them, without a library that writes them."""

import zipfile
from xml.sax.saxutils import escape


def book(path, **sheets):
    """Write the smallest workbook that Excel opens: one list of rows per sheet."""

    def cell(value):
        if value is None:
            return "<c/>"
        if isinstance(value, str) and value.startswith("#"):
            return f'<c t="e"><v>{escape(value)}</v></c>'
        if isinstance(value, str):
            return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
        return f"<c><v>{value!r}</v></c>"

    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    links = f'<Relationships xmlns="{package}/relationships">%s</Relationships>'
    link = '<Relationship Id="r%d" Type="' + office + '/%s" Target="%s"/>'
    numbered = list(enumerate(sheets, start=1))
    names = "".join(f'<sheet name="{n}" sheetId="{k}" r:id="r{k}"/>' for k, n in numbered)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{package}/content-types"><Default Extension="xml" '
            'ContentType="application/xml"/><Default Extension="rels" ContentType="application/vnd.'
            'openxmlformats-package.relationships+xml"/><Override PartName="/xl/workbook.xml" '
            'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"'
            "/></Types>",
        )
        archive.writestr("_rels/.rels", links % link % (1, "officeDocument", "xl/workbook.xml"))
        archive.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>{names}</sheets></workbook>',
        )
        each = "".join(link % (k, "worksheet", f"worksheets/sheet{k}.xml") for k, _ in numbered)
        archive.writestr("xl/_rels/workbook.xml.rels", links % each)
        for k, name in numbered:
            rows = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in sheets[name])
            sheet = f'<worksheet xmlns="{main}"><sheetData>{rows}</sheetData></worksheet>'
            archive.writestr(f"xl/worksheets/sheet{k}.xml", sheet)
