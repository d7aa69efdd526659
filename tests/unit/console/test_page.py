"""Files of the page: they run under a strict policy, and make texts of texts."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from streaming.console.app import STATIC

SCRIPTS = sorted(STATIC.glob("*.js"))
PAGES = sorted(STATIC.glob("*.html"))
MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc")
CODE = re.compile(r"\beval\b|new Function|setTimeout\(\s*[\"'`]")


def _name(file: Path) -> str:
    return file.name


@pytest.mark.parametrize("file", SCRIPTS, ids=_name)
def test_scripts_never_read_texts_as_markup_or_code_and_can_be_parsed(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert not MARKUP.search(text)
    assert not CODE.search(text)
    if shutil.which("node") is not None:
        command = ["node", "--input-type=module", "--check"]
        subprocess.run(command, input=text, check=True, capture_output=True, text=True)


@pytest.mark.parametrize("file", PAGES, ids=_name)
def test_pages_have_nothing_inline(file: Path) -> None:
    """The policy would refuse it."""
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"<style|\bstyle=|\bon[a-z]+=|javascript:", text)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))
    assert '<html lang="en">' in text
    assert "<main" in text


@pytest.mark.parametrize("file", [*SCRIPTS, *PAGES, *STATIC.glob("*.css")], ids=_name)
def test_nothing_is_fetched_from_elsewhere(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert re.findall(r"(?:https?:)?//[\w.-]+\.\w+", re.sub(r"http://www\.w3\.org/2000/svg", "", text)) == []
    assert "@import" not in text
    assert "url(" not in text


def test_every_file_is_used() -> None:
    """And every import leads to one."""
    texts = "".join(file.read_text(encoding="utf-8") for file in [*SCRIPTS, *PAGES])
    imported = {*re.findall(r'from "\./([\w.-]+)"', texts), *re.findall(r'(?:href|src)="static/([\w.-]+)"', texts)}
    assert imported == {file.name for file in STATIC.iterdir() if file.suffix != ".html"}
