"""What the package is made of: the closure, the licences, the advisories and the SBOM."""

import hashlib
import http.server
import json
import re
import threading
import zipfile
from email.message import Message
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import audit, oldest, release

# --- the closure ---------------------------------------------------------------------------------


class Distribution:
    """A package as importlib.metadata describes one."""

    def __init__(self, version, *requires, licence="MIT"):
        self.version, self.requires = version, list(requires)
        self.metadata = Message()
        self.metadata["License-Expression"] = licence


def made_up(name):
    """Return packages of which some are needed in roundabout ways, and one is not installed."""
    known = {
        "a": Distribution("1.0", "B_b[fast]>=1", "never; python_version < '3'"),
        "b-b": Distribution("2.0", "c; extra == 'fast'", "d; extra == 'slow'", "a"),
        "c": Distribution("3.0", licence="GPL-3.0-only"),
        "d": Distribution("4.0", "c"),
        "e": Distribution("5.0+local", "b-b[slow]"),
    }
    if name not in known:
        raise metadata.PackageNotFoundError(name)
    return known[name]


ABOUT = {
    "name": "whole",
    "version": "0.1",
    "description": "A whole of parts",
    "license": "BSD-3-Clause",
    "authors": [{"name": "some people"}],
    "dependencies": ["a>=1"],
    "optional-dependencies": {"more": ["gone>=2"], "dev": ["e"], "all": ["whole[more]"]},
}


def test_the_closure_follows_extras_markers_and_circles():
    found = audit.closure(ABOUT, made_up)
    assert {name: one.version for name, one in found.items()} == {
        **{"a": "1.0", "b-b": "2.0", "c": "3.0", "d": "4.0", "e": "5.0+local", "gone": None}
    }
    groups = {name: one.groups for name, one in found.items()}
    assert groups["a"] == groups["b-b"] == groups["c"] == ("core", "dev")
    assert groups["d"] == groups["e"] == ("dev",) and groups["gone"] == ("more",)
    assert found["b-b"].needs == ("a", "c", "d") and found["a"].needs == ("b-b",)


def test_the_closure_of_the_project_is_closed_and_holds_all_that_it_asks_for():
    about = audit.project()
    found = audit.closure(about)
    groups = {"core": about["dependencies"], **about["optional-dependencies"]}
    for group, lines in groups.items():
        for one in map(Requirement, lines):
            name = canonicalize_name(one.name)
            if name != "dualpca" and (one.marker is None or one.marker.evaluate()):
                assert group in found[name].groups
    for name, one in found.items():
        assert set(one.needs) <= found.keys()
        assert all(set(one.groups) <= set(found[other].groups) for other in one.needs), name
        if one.version is None:
            with pytest.raises(metadata.PackageNotFoundError):
                metadata.version(name)
        else:
            assert one.version == metadata.version(name)
    assert found["scipy"].groups[0] == "core" and found["pytest"].groups == ("dev",)


# --- licences ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "licence, permissive",
    [
        ("MIT", True),
        ("BSD-3-Clause AND 0BSD AND Zlib", True),
        ("Apache-2.0 WITH LLVM-exception AND MIT", True),
        ("(MIT OR GPL-3.0-only) AND Zlib", True),
        ("MIT OR (GPL-3.0-only AND Zlib)", True),
        ("MPL-2.0 AND MIT", False),
        ("GPL-3.0-only OR (GPL-2.0-only AND MIT)", False),
        ("Public Domain AND BSD AND GNU General Public License (GPL)", False),
        ("unknown", False),
    ],
)
def test_a_licence_is_permissive_if_each_part_leaves_a_permissive_choice(licence, permissive):
    assert audit.is_permissive(licence) is permissive


@pytest.mark.parametrize(
    "fields, licence",
    [
        ([("License-Expression", "mit and psf-2.0"), ("License", "GPL")], "MIT AND PSF-2.0"),
        ([("License", "BSD-3-Clause")], "BSD-3-Clause"),
        ([("License", "BSD 3-Clause License\n\nCopyright ...")], "BSD-3-Clause"),
        ([("Classifier", "License :: OSI Approved :: MIT License")], "MIT"),
        (
            [
                ("License", "Copyright (c) the makers"),
                ("Classifier", "License :: OSI Approved :: BSD License"),
                ("Classifier", "License :: OSI Approved :: GNU Something"),
            ],
            "BSD AND GNU Something",
        ),
        ([("License", "Copyright (c) the makers\nAll rights ...")], "Copyright (c) the makers"),
        ([("Classifier", "Topic :: Mathematics")], "unknown"),
    ],
)
def test_the_licence_is_what_the_metadata_say_as_far_as_they_say_it(fields, licence):
    about = Message()
    for name, text in fields:
        about[name] = text
    assert audit.licence_of(about) == licence


def test_every_licence_that_is_not_permissive_was_reviewed():
    pinned = oldest.pins()  # older ones word their licences in other ways
    packages = audit.closure(audit.project())
    here = [one for name, one in packages.items() if pinned.get(name) == one.version]
    assert audit.not_permissive(here).open == []
    [told] = audit.not_permissive(audit.closure(ABOUT, made_up).values()).open
    assert told == "c (core, dev), GPL-3.0-only."


# --- advisories ----------------------------------------------------------------------------------


def advisory(name, **affected):
    return {"package": {"ecosystem": "PyPI", "name": name}, **affected}


def between(*events):
    return {"ranges": [{"type": "ECOSYSTEM", "events": list(events)}]}


@pytest.mark.parametrize(
    "affected, versions",
    [
        ({"versions": ["1.0", "1.5", "odd!"]}, {"1.0", "1.5"}),
        (between({"introduced": "0"}, {"fixed": "1.5"}), {"0.9", "1.0"}),
        (between({"introduced": "0"}, {"last_affected": "1.5"}), {"0.9", "1.0", "1.5"}),
        (between({"fixed": "1.5"}, {"introduced": "1.0"}, {"introduced": "2.0"}), {"1.0", "2.0"}),
        (between({"introduced": "0"}), {"0.9", "1.0", "1.5", "2.0"}),
        ({"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, set()),
    ],
)
def test_a_version_is_affected_if_it_is_listed_or_lies_in_a_range(affected, versions):
    tried = ["0.9", "1.0", "1.5", "2.0"]
    assert {one for one in tried if audit.is_affected(one, affected)} == versions
    assert audit.is_affected("1.0+local", affected) is ("1.0" in versions)


def records(place):
    told = {
        "A": {"id": "A", "aliases": ["CVE-1"], "affected": [advisory("B_B", versions=["2.0"])]},
        "B": {"id": "B", "affected": [advisory("b-b", versions=["1.0"])]},
        "C": {"id": "C", "withdrawn": "2020", "affected": [advisory("a", versions=["1.0"])]},
        "D": {"id": "D", "affected": [advisory("gone", versions=["2.0"])]},
        "E": {"id": "E", "affected": [{"package": {"ecosystem": "npm", "name": "a"}}]},
    }
    if place.suffix == ".zip":
        with zipfile.ZipFile(place, "w") as archive:
            for name, one in told.items():
                archive.writestr(f"{name}.json", json.dumps(one))
    else:
        place.mkdir()
        for name, one in told.items():
            (place / f"{name}.json").write_text(json.dumps(one))
    return place


@pytest.mark.parametrize("name", ["all.zip", "folder"])
def test_stored_advisories_are_compared_with_what_is_installed(name, tmp_path):
    packages = audit.closure(ABOUT, made_up)
    found = audit.from_records(packages.values(), records(tmp_path / name))
    assert found == [(packages["b-b"], "A = CVE-1")]


@pytest.fixture
def osv(monkeypatch):
    """A server that knows one advisory, and notes what it was asked."""
    asked = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
            asked.extend(queries)
            names = [one["package"]["name"] for one in queries]
            told = [{"vulns": [{"id": "PYSEC-1"}]} if name == "c" else {} for name in names]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"results": told}).encode())

        def log_message(self, *_):
            pass

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", asked
        server.shutdown()
        thread.join()


def test_osv_is_asked_for_names_and_versions_and_nothing_else(osv):
    url, asked = osv
    packages = audit.closure(ABOUT, made_up)
    assert audit.from_network(packages.values(), url) == [(packages["c"], "PYSEC-1")]
    assert {one["package"]["name"]: one["version"] for one in asked} == {
        **{"a": "1.0", "b-b": "2.0", "c": "3.0", "d": "4.0", "e": "5.0"}
    }
    assert all(one.keys() == {"package", "version"} for one in asked)


@pytest.fixture
def permissive(monkeypatch):
    """Licences that decide nothing: the status is that of the advisories."""
    monkeypatch.setattr(audit, "is_permissive", lambda licence: True)


def test_without_advisories_the_audit_says_that_it_did_not_look(capsys, monkeypatch, permissive):
    def nobody(*_, **__):
        raise AssertionError("nothing may be fetched unless asked for")

    monkeypatch.setattr(audit.urllib.request, "urlopen", nobody)
    assert audit.main([]) == 0
    told = capsys.readouterr().out
    assert "NOT checked" in told and "--online" in told and "--advisories" in told
    assert re.search(r"(?m)^numpy +\S+ +BSD-3-Clause.* core", told)


def test_the_status_is_one_if_a_version_here_is_known_to_be_vulnerable(
    tmp_path, capsys, permissive
):
    own = metadata.version("numpy")
    place = tmp_path / "records"
    place.mkdir()
    told = {"id": "PYSEC-9", "affected": [advisory("numpy", versions=[own])]}
    (place / "one.json").write_text(json.dumps(told))
    assert audit.main(["--advisories", str(place)]) == 1
    assert f"- numpy {own}: PYSEC-9" in capsys.readouterr().out
    told["affected"] = [advisory("numpy", versions=["0.0.1"])]
    (place / "one.json").write_text(json.dumps(told))
    assert audit.main(["--advisories", str(place)]) == 0
    assert "Known vulnerabilities:\nnone" in capsys.readouterr().out


def test_advisories_that_cannot_be_read_are_no_clean_bill(tmp_path, capsys, monkeypatch):
    def offline(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(audit.urllib.request, "urlopen", offline)
    (tmp_path / "broken.zip").write_bytes(b"not an archive")
    (tmp_path / "empty").mkdir()
    for asked in (["broken.zip"], ["empty"], ["absent.zip"]):
        assert audit.main(["--advisories", str(tmp_path / asked[0])]) == 1
        assert "NOT checked" in capsys.readouterr().out
    assert audit.main(["--online"]) == 1
    assert "NOT checked: no network" in capsys.readouterr().out


# --- the bill of materials -----------------------------------------------------------------------

PURL = re.compile(r"pkg:pypi/[a-z0-9]+(-[a-z0-9]+)*(@[A-Za-z0-9.%!-]+)?")
SERIAL = re.compile(r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def check(document):
    """Check what CycloneDX 1.6 asks of the fields that are used, and that references hold."""
    assert document["bomFormat"] == "CycloneDX" and document["specVersion"] == "1.6"
    assert document["version"] == 1 and SERIAL.fullmatch(document["serialNumber"])
    about = document["metadata"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", about["timestamp"])
    parts = [about["component"], *document["components"]]
    references = [one["bom-ref"] for one in (*parts, *about["component"]["components"])]
    assert len(set(references)) == len(references)
    for one in parts:
        assert one["type"] == "library" and one["name"] and PURL.fullmatch(one["purl"])
        assert one.get("scope") in (None, "required", "optional")
        for told in one.get("licenses", []):
            assert told.keys() in ({"expression"}, {"license"})
    for file in about["component"]["components"]:
        assert file["type"] == "file" and re.fullmatch("[0-9a-f]{64}", file["hashes"][0]["content"])
        assert file["hashes"][0]["alg"] == "SHA-256"
    edges = {one["ref"]: one["dependsOn"] for one in document["dependencies"]}
    assert edges.keys() == {one["bom-ref"] for one in parts}
    assert {other for ends in edges.values() for other in ends} < edges.keys()
    reached, waiting = set(), [about["component"]["bom-ref"]]
    while waiting:
        if (at := waiting.pop()) not in reached:
            reached.add(at)
            waiting += edges[at]
    assert reached == edges.keys()  # nothing is listed without something that needs it


def test_the_bill_lists_what_users_install_and_how_it_hangs_together():
    packages = audit.closure(ABOUT, made_up)
    document = audit.bill(ABOUT, packages, [])
    check(document)
    found = {one["name"]: one for one in document["components"]}
    assert set(found) == {"a", "b-b", "c", "gone"}  # d and e are for developers only
    assert found["c"]["scope"] == "required" and found["gone"]["scope"] == "optional"
    assert found["c"]["licenses"] == [{"expression": "GPL-3.0-only"}]
    assert "version" not in found["gone"] and "licenses" not in found["gone"]
    edges = {one["ref"]: one["dependsOn"] for one in document["dependencies"]}
    assert edges["pkg:pypi/whole@0.1"] == ["pkg:pypi/a@1.0", "pkg:pypi/gone"]
    assert edges["pkg:pypi/b-b@2.0"] == ["pkg:pypi/a@1.0", "pkg:pypi/c@3.0"]
    assert document["compositions"][0]["aggregate"] == "incomplete"


def test_the_same_parts_give_the_same_bill(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    packages = audit.closure(ABOUT, made_up)
    one, other = (audit.bill(ABOUT, packages, []) for _ in range(2))
    assert one == other and one["metadata"]["timestamp"] == "1970-01-02T00:00:00Z"
    changed = packages | {"c": packages["c"]._replace(version="3.1")}
    assert audit.bill(ABOUT, changed, [])["serialNumber"] != one["serialNumber"]


def test_the_release_has_a_bill_with_its_archives_and_without_traces_of_the_machine(tmp_path):
    archive = tmp_path / f"dualpca-{release.version()}.tar.gz"
    archive.write_bytes(b"an archive")
    assert all("licence" in fault for fault in release.bill_of_materials(tmp_path))
    text = (tmp_path / f"dualpca-{release.version()}.cdx.json").read_text("utf-8")
    document = json.loads(text)
    check(document)
    [file] = document["metadata"]["component"]["components"]
    assert file["name"] == archive.name
    assert file["hashes"][0]["content"] == hashlib.sha256(b"an archive").hexdigest()
    required = {one["name"] for one in document["components"] if one.get("scope") == "required"}
    assert required >= {"numpy", "scipy", "scikit-learn"} and "polars" not in required
    assert not {"pytest", "sphinx", "ruff"} & {one["name"] for one in document["components"]}
    for trace in (str(tmp_path), str(audit.ROOT), "file:///", "/simple"):
        assert trace not in text
    assert set(re.findall(r"https?://[^/\"]+", text)) == {"http://cyclonedx.org"}
