"""Links of pages, and mentions of pages in the code, lead somewhere, in the repository and on the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLDERS = ("benchmarks", "cmake", "docs", "examples", "passes", "python", "runtime", "tests")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))]
ARCHIVE = DOCS / "decisions" / "archive"


def links(page: Path) -> list[str]:
    """Return where relative links of a page lead, without the place within the page."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)#\s]+)", prose)
    return [target for target in targets if not re.match(r"https?:|mailto:", target)]


def sources() -> list[Path]:
    """Return the files that may mention a page: code, tests, scripts, pages other than archived decisions."""
    suffixes = {".c", ".cmake", ".cpp", ".h", ".inc", ".md", ".py", ".pyi", ".toml", ".txt", ".yml"}
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    tops = [path for path in ROOT.iterdir() if path.is_file() and (path.suffix in suffixes or path.name == "Makefile")]
    return [path for path in tops + found if ARCHIVE not in path.parents and path != Path(__file__)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    assert [target for target in links(page) if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_the_site_lead_to_its_pages(page):
    # A folder is no page of the site, and what lies outside of docs/ is not on it.
    targets = [(page.parent / target).resolve() for target in links(page)]
    assert [str(target) for target in targets if DOCS not in target.parents or target.is_dir()] == []


def test_mentions_of_pages_lead_to_them():
    lost = [
        (str(path.relative_to(ROOT)), mention)
        for path in sources()
        for mention in re.findall(r"\bdocs/[\w/.-]*\.md\b", path.read_text())
        if not (ROOT / mention).exists()
    ]
    assert lost == []


def test_a_decision_that_is_named_by_its_number_is_in_the_list():
    listed = re.findall(r"\(archive/(\d{4})[\w-]*\.md\)", (DOCS / "decisions" / "README.md").read_text())
    assert sorted(listed) == sorted(path.name[:4] for path in ARCHIVE.iterdir())
    named = {number for path in sources() for number in re.findall(r"[Dd]ecisions? (\d{4})\b", path.read_text())}
    assert len(named) > 3
    assert named <= set(listed)
