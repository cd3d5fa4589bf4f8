"""Whether this machine runs on its battery."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SUPPLIES = Path("/sys/class/power_supply")


def on_battery(supplies: Path = SUPPLIES) -> bool:
    """Whether the battery is being used up. False where there is none, or nobody knows."""
    if sys.platform == "darwin":
        try:
            found = subprocess.run(["/usr/bin/pmset", "-g", "batt"], capture_output=True, text=True, timeout=2,
                                   check=False)
        except (OSError, subprocess.SubprocessError):
            return False
        return "Battery Power" in found.stdout
    if sys.platform == "win32":
        return _windows()
    try:
        kinds = [(_read(supply / "type"), supply) for supply in supplies.iterdir()
                 if _read(supply / "scope") != "Device"]  # a mouse's battery is not this machine's
    except OSError:
        return False
    if any(kind != "Battery" and _read(supply / "online") == "1" for kind, supply in kinds):
        return False
    return any(kind == "Battery" and _read(supply / "status") == "Discharging" for kind, supply in kinds)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _windows() -> bool:
    import ctypes

    status = (ctypes.c_ubyte * 12)()
    kernel = getattr(ctypes, "windll").kernel32  # noqa: B009  it exists on Windows only
    return bool(kernel.GetSystemPowerStatus(ctypes.byref(status))) and status[0] == 0
