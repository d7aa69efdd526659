# ruff: noqa: INP001 - a command of the build, no package
"""Build the documentation as a site. A link or an anchor without a target is an error.

    python docs/site/build.py TARGET

The site contains all pages of the repository at their paths. Links to code and folders become plain text.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
FOLDERS = ("deploy", "docs", "matcher", "streaming", "tests")
IMAGES = {".png", ".svg", ".jpg", ".webp"}

SECTIONS = {
    "Start": ["README.md", "docs/concepts.md"],
    "Tutorials": [
        "docs/dispatcher.md",
        "docs/own-kafka.md",
        "docs/kafka-consumer.md",
        "docs/rocketmq.md",
    ],
    "Operate": [
        "deploy/README.md",
        "docs/configuration.md",
        "docs/security.md",
        "docs/operations.md",
        "docs/delivery.md",
        "deploy/rocketmq/README.md",
    ],
    "Inspect": ["docs/console.md", "docs/inspect.md", "docs/verify.md"],
    "Reference": [
        "docs/records.md",
        "docs/dialects-and-selectors.md",
        "matcher/README.md",
        "streaming/client/README.md",
        "streaming/adapters/README.md",
        "docs/limits.md",
    ],
    "Evidence": ["docs/performance.md", "docs/chaos.md", "docs/compared.md"],
    "Develop": ["docs/how-it-decides.md", "docs/rules.md", "CONTRIBUTING.md", "CHANGELOG.md"],
}
"""Sections of the navigation by task, and their pages. Other pages follow in a section of their folder."""

HOME = re.compile(r"https://github\.com/reexpand/reexpand/(?:blob|raw)/main/")
"""Prefix of the main page's links, which are absolute for package indexes."""


def pages() -> list[Path]:
    """Return all pages and images, as paths in the repository."""
    found = [*ROOT.glob("*.md")]
    for folder in FOLDERS:
        found += [file for file in (ROOT / folder).rglob("*") if file.suffix == ".md" or file.suffix in IMAGES]
    return sorted(file.relative_to(ROOT) for file in found)


def navigation(files: list[Path]) -> list[dict[str, list[str]]]:
    """Return the sections with their pages. Pages that are not listed are added by their folder."""
    sections = {name: [page for page in listed if Path(page) in files] for name, listed in SECTIONS.items()}
    placed = {page for listed in sections.values() for page in listed}
    for file in files:
        if file.suffix == ".md" and str(file) not in placed:
            folder = file.parts[1] if file.parts[0] == "docs" and len(file.parts) > 2 else file.parts[0]  # noqa: PLR2004
            name = "Decisions" if folder == "decisions" else "Develop" if folder != "docs" else "Reference"
            sections.setdefault(name, []).append(str(file))
    return [{name: listed} for name, listed in sections.items() if listed]


def without_links_to_code(text: str, page: Path, files: set[Path]) -> str:
    """Return the page with links to code and folders replaced by their texts."""
    if page == Path("README.md"):
        text = HOME.sub("", text)

    def keep(link: re.Match[str]) -> str:
        target = link[2].partition("#")[0]
        if not target or ":" in target:
            return link[0]
        path = (ROOT / page.parent / target).resolve()
        if path.is_relative_to(ROOT) and path.relative_to(ROOT) in files:
            return link[0]
        return link[1]

    blocks = re.split(r"(^```.*?^```)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(
        block if number % 2 else re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", keep, block)
        for number, block in enumerate(blocks)
    )


def main() -> int:
    """Collect the pages, build the site, and return the exit code."""
    files = pages()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for file in files:
            target = folder / "pages" / file
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.suffix == ".md":
                text = (ROOT / file).read_text(encoding="utf-8")
                target.write_text(without_links_to_code(text, file, set(files)), encoding="utf-8")
            else:
                shutil.copyfile(ROOT / file, target)
        shutil.copyfile(ROOT / "build/rules.md", folder / "pages/docs/rules.md")
        configuration = (HERE / "mkdocs.yml").read_text(encoding="utf-8")
        # JSON is YAML.
        (folder / "mkdocs.yml").write_text(
            f"{configuration}nav: {json.dumps(navigation([*files, Path('docs/rules.md')]))}\n", encoding="utf-8"
        )
        target = Path(sys.argv[1]).resolve()
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
        environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # an advertisement
        # Where warnings are not shown, mkdocs does not count them either.
        done = subprocess.run(command, cwd=folder, check=False, env=environment, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.stderr.write(done.stderr)
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())
