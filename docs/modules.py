"""Every module of kvchat in a line: its name, and what it is for by the first sentence of its docstring.

python docs/modules.py [PACKAGE ...]      of all, or of some: chat.tools memory
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

CODE = Path(__file__).parents[1] / "tui" / "kvchat"


def modules(*packages: str) -> Iterator[str]:
    for path in sorted(CODE.rglob("*.py")):
        name = ".".join(path.relative_to(CODE).with_suffix("").parts).removesuffix(".__init__")
        about = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0]
        if not packages or any(f"{name}.".startswith(f"{package}.") for package in packages):
            yield f"{name:<44} {' '.join(about.split())}"


if __name__ == "__main__":
    print("\n".join(modules(*sys.argv[1:])))
