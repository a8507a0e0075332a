"""What the pages say of the code is there: links, files, modules, names, numbers."""

import importlib
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]
PAGES += sorted(DOCS.glob("*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(r"(?<![\w/])((?:src|conf|tests|experiments)/[\w/]+\.(?:py|yaml))")
MODULE = re.compile(r"(?<![\w/])(paceline(?:\.\w+)+)")
IMPORT = re.compile(r"^from (paceline[\w.]*) import (.+)$", re.MULTILINE)
NEW = re.compile(r"`([\w/.]+)` \(new\)")  # what the reader of a page adds


def links_of(page):
    return [link for link in LINK.findall(page.read_text()) if "://" not in link]


def added_files(page):
    return set(NEW.findall(page.read_text()))


def added_modules(page):
    files = (path for path in added_files(page) if path.startswith("src/"))
    return {path.removeprefix("src/").removesuffix(".py").replace("/", ".") for path in files}


def is_there(name):
    """A module, or what hangs on one."""
    module, _, member = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return bool(module) and member in vars(importlib.import_module(module))
    return True


def test_every_link_leads_somewhere():
    links = [(page, link) for page in PAGES for link in links_of(page)]
    assert [link for page, link in links if not leads_somewhere(page, link)] == []


def leads_somewhere(page, link):
    """The file is there, and in a page its heading."""
    name, _, heading = link.partition("#")
    target = page.parent / name if name else page
    if not heading or not target.exists():
        return target.exists()
    headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
    return heading in [re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings]


def test_every_file_that_a_page_names_is_there_unless_its_reader_adds_it():
    for page in PAGES:
        added = added_files(page)
        named = {name for name in FILE.findall(page.read_text()) if Path(name).stem != "mine"}
        assert [name for name in named - added if not (ROOT / name).is_file()] == [], page
        assert [name for name in added if (ROOT / name).exists()] == [], page


def test_every_module_and_class_that_a_page_names_is_there():
    for page in PAGES:
        text, added = page.read_text(), added_modules(page)
        imports = [(m, name) for m, names in IMPORT.findall(text) for name in names.split(",")]
        names = {*MODULE.findall(text), *(f"{module}.{name.strip()}" for module, name in imports)}
        old = {name for name in names if not any(f"{name}.".startswith(f"{n}.") for n in added)}
        assert sorted(name for name in old if not is_there(name)) == [], page


def test_the_pages_link_every_file_of_docs():
    linked = {Path(link.partition("#")[0]).name for page in PAGES for link in links_of(page)}
    assert {path.name for path in DOCS.iterdir()} <= linked


def test_the_kubernetes_manifest_starts_torchrun_in_equal_pods():
    """As far as its syntax tells: the operator finds its container by this name."""
    job = yaml.safe_load((DOCS / "kubernetes.yaml").read_text())
    pods = job["spec"]["pytorchReplicaSpecs"]
    assert job["kind"] == "PyTorchJob"
    assert pods["Master"] == pods["Worker"]
    (container,) = pods["Master"]["template"]["spec"]["containers"]
    assert container["name"] == "pytorch"
    assert container["command"][:3] == ["torchrun", "-m", "paceline"]
