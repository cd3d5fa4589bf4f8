"""What every test stands on: its own folders, a calm terminal, no settings of the person who runs it, and the tiers.

`uv run pytest` runs what needs neither a real model server nor a process of kvchat, on all processors. Three tiers are
left out of it and run by name, as `.ci/run` does, and one does more of what is in it:

    uv run pytest -m engine     starts the real llama-server
    uv run pytest -m process    starts kvchat, forks, kills, or sits at a terminal
    uv run pytest -m slow       long walks, corpora at full size, and single features all through the app
    uv run pytest -m property   the property tests with all of their examples: everywhere else each draws 25

Whoever names files or tests gets all that is in them, of every tier, in this one process. A test that starts a server
or a kvchat without the mark for it fails and names the mark.
"""

from __future__ import annotations

import gc
import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from engine_fixture import RunningServer

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # helpers beside this file: toyserver, engine_fixture

if sys.dont_write_bytecode:
    # Each worker would compile all tests, and each child kvchat: kept where pytest keeps what it knows.
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(HERE.parent / ".pytest_cache" / "bytecode")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    del os.environ["PYTHONDONTWRITEBYTECODE"]

for name in ("NO_COLOR", "TEXTUAL_THEME", "KVCHAT_BASE_URL", "KVCHAT_DATA_DIR", "KVCHAT_CONFIG", "EDITOR", "VISUAL"):
    os.environ.pop(name, None)
os.environ["TEXTUAL_ANIMATIONS"] = "none"
os.environ["TZ"] = "UTC"

sys.modules.setdefault("sniffio", None)  # type: ignore[arg-type]  # httpcore looks for it on disk at every request

TIERS = ("engine", "process", "slow")
ON_THE_WAY = " and ".join(f"not {tier}" for tier in TIERS)
"""The `-m` of pyproject.toml."""
MEMORY = "/dev/shm"
"""Where Linux keeps files in memory. A disk takes 1 ms to take a folder away, and each test has three. What is killed,
and what asks the disk itself, is of another tier."""
FEW_EXAMPLES = 25
"""Examples of a property test at most, unless `-m property` asks for all of them."""


# -- tiers ------------------------------------------------------------------------------------------------------------


def names_files(config: pytest.Config) -> bool:
    """Whether files or tests were named, and no folder."""
    return config.args_source is config.ArgsSource.ARGS and all(
        argument.partition("::")[0].endswith(".py") for argument in config.args
    )


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than processors: some tests wait. A few files are done before more interpreters have begun."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 0 if names_files(config) else processors + 1


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of a job of a shell: the kvchats of tests inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.markexpr == ON_THE_WAY and names_files(config):
        config.option.markexpr = ""
    if config.option.markexpr == ON_THE_WAY and has_room(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


def has_room(folder: str) -> bool:
    """Whether the folders of tests may lie there: the quick ones write some MB, and start what they write."""
    if not os.access(folder, os.W_OK):
        return False
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize > 2**31 and not found.f_flag & os.ST_NOEXEC


STARTERS = {
    "running_server": "engine",
    "tiny_server": "engine",
    "two_servers": "engine",
    "serving": "engine",
    "served": "engine",
    "strict_server": "engine",
    "plain_server": "engine",
    "fork": "process",
    "forked": "process",
    "environment": "process",
}
"""Helpers and fixtures that start something, and the tier of whatever uses them."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    tests = [item for item in items if isinstance(item, pytest.Function)]
    for item in tests:
        for tier in _tiers_of(item):
            item.add_marker(tier)
    if "hypothesis" in sys.modules:
        _draw_examples(tests, all_of_them="property" in config.option.markexpr)


def _tiers_of(item: pytest.Function) -> set[str]:
    fixtures = [found[-1].func for found in item._fixtureinfo.name2fixturedefs.values()]
    used = {*item.fixturenames, *(name for made in (item.function, *fixtures) for name in _names(made))}
    return {STARTERS[name] for name in used if name in STARTERS}


@cache
def _names(made: Callable[..., Any]) -> frozenset[str]:
    """The names of its module that stand in a function, and in those inside it."""
    function, names = inspect.unwrap(made), set()
    codes = [function.__code__] if inspect.isfunction(function) else []
    for code in codes:
        names.update(code.co_names)
        codes += [part for part in code.co_consts if inspect.iscode(part)]
    return frozenset(name for name in names if name in function.__globals__)


def pytest_make_parametrize_id(config: pytest.Config, val: object) -> str | None:
    """Bytes and long texts by how they begin: workers must agree on names, and an archive holds the time of day."""
    if isinstance(val, bytes):
        return ascii(val[:8])[2:-1] or "empty"
    if isinstance(val, str) and len(val) > 60:
        return f"{val[:50]}... {len(val)}".encode("unicode_escape").decode("ascii")
    return None


def pytest_collection_finish() -> None:
    """What is loaded by now stays: the collector of garbage need not look at it again, nor after every 700 objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    if "textual.app" in sys.modules:
        import still

        still.use()
    if "kvchat.chat.service" in sys.modules:
        import patience

        patience.use()


def _draw_examples(tests: Sequence[pytest.Function], *, all_of_them: bool) -> None:
    """Mark the property tests, and fit their own settings to the run. No machine is too slow for them."""
    from hypothesis import HealthCheck, settings

    def fitted(own: settings) -> settings:
        most = own.max_examples if all_of_them else min(own.max_examples, FEW_EXAMPLES)
        checks = {*own.suppress_health_check, HealthCheck.too_slow}
        return settings(own, max_examples=most, deadline=None, suppress_health_check=checks)

    found = [
        item
        for item in tests
        if getattr(item.function, "is_hypothesis_test", False)
        or hasattr(item.function, "_hypothesis_state_machine_class")
    ]
    for item in found:
        item.add_marker("property")
    for test in {item.function for item in found}:
        if machine := getattr(test, "_hypothesis_state_machine_class", None):
            machine.TestCase.settings = fitted(machine.TestCase.settings)
        else:
            own = getattr(test, "_hypothesis_internal_use_settings", None) or settings()
            test._hypothesis_internal_use_settings = fitted(own)


STARTED: set[str] = set()
"""The tiers whose processes the running test has started."""


def _notice_processes(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("os.fork", "os.forkpty"):
        STARTED.add("process")
    elif event == "subprocess.Popen":
        command = " ".join(map(str, arguments[1]))
        if "xllamacpp" in command or "engine.child" in command:
            STARTED.add("engine")
        elif sys.executable in command and (" -c " in command or "kvchat.cli" in command):
            STARTED.add("process")  # and not what kvchat starts by itself, to read files


sys.addaudithook(_notice_processes)


@pytest.fixture(autouse=True)
def told_tiers(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that starts what a tier stands for has the mark of one."""
    STARTED.clear()
    yield
    if STARTED and not any(request.node.get_closest_marker(tier) for tier in TIERS):
        pytest.fail(f"This test starts processes: mark it with @pytest.mark.{min(STARTED)}.")


# -- engines ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def plain_server() -> Iterator[RunningServer]:
    """A real server with the small model for whoever only asks it something, whatever its slots hold."""
    from engine_fixture import running_server

    with running_server(slots=2, context=2048) as running:
        yield running


# -- places -----------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Data, settings and home in a folder of this test alone; the log that an unexpected error opens there ends with
    it, else what later tests log would go into that."""
    home = tmp_path / "home"
    (home / "config").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("KVCHAT_DATA_DIR", str(home / "data"))
    monkeypatch.setenv("KVCHAT_CONFIG", str(home / "config" / "config.toml"))
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    yield home
    from kvchat import logs

    logs.stop()
