"""The docs as a site that needs no network to be read: `uv run --with mkdocs-material docs/site.py [FOLDER]`.

On a forge the pages are read where they lie. The site has them in one folder: the README is its first page, and links
lead to where things are then. One that leads nowhere ends the build.
"""

from __future__ import annotations

import logging
import re
import shutil
import sys
import tempfile
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).resolve().parents[1]
PAGES = (*sorted((ROOT / "docs").glob("*.md")), *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md")))
LINK = re.compile(r"\]\(((?!\w+:)[^)#\s]+)")


def moved(page: Path) -> str:
    """A page's text, with links as they are where all pages are in one folder."""

    def link(found: re.Match[str]) -> str:
        target = (page.parent / found[1]).resolve().relative_to(ROOT)
        if target.parts[0] in ("docs", "screenshots"):
            return f"]({target.relative_to('docs') if target.parts[0] == 'docs' else target}"
        return f"]({'index.md' if target.name == 'README.md' else target}"

    return LINK.sub(link, page.read_text(encoding="utf-8"))


def main(site: Path) -> None:
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        for page in (*PAGES, ROOT / "CHANGELOG.md"):
            (source / page.name).write_text(moved(page), encoding="utf-8")
        (source / "index.md").write_text(moved(ROOT / "README.md"), encoding="utf-8")
        shutil.copy(ROOT / "LICENSE", source / "LICENSE")
        shutil.copytree(ROOT / "screenshots", source / "screenshots", ignore=shutil.ignore_patterns("*.py", "*.json"))
        build(load_config(str(ROOT / "docs" / "site.yml"), docs_dir=str(source), site_dir=str(site), strict=True))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve())
