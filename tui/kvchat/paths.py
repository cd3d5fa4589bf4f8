"""Where things live on this machine, and how private files are written.

What kvchat makes is private to the user: folders 0700, files 0600, whatever the umask says.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from kvchat.patterns import compiled_later

DATA_VARIABLE = "KVCHAT_DATA_DIR"
CONFIG_VARIABLE = "KVCHAT_CONFIG"
LONGEST = 4096
"""Characters of a path that is pasted."""
_COPY = compiled_later(
    r"(?P<stem>.+?)(?:(?i:\.sync-conflict-[0-9]{8}-[0-9]{6}(?:-[0-9a-z]+)?"
    r"|[ _.-]?[(\[][^()\[\]]*(?:conflict|konflikt|conflit|conflicto|conflitto|競合|冲突)[^()\[\]]*[)\]]"
    r"|[ _.-]conflict(?:ed)?[ _.-][0-9]{4}[0-9 _.:-]*)"
    r"|-(?:DESKTOP|LAPTOP|WIN|PC)-[0-9A-Z]{1,15}(?:-[0-9]{1,3})?"
    r"|-[\w-]*(?:MacBook|iMac|Mac-mini)[\w-]*"
    r"|(?P<number> [2-9]| ?\([0-9]{1,3}\)))(?P<suffix>\.[^.]+)?"
)
_BEGINS = compiled_later(r"""['"]?(?:/|~/|\./|\.\./|file://)""")


class PathError(Exception):
    """A file or folder that cannot be used; the sentence says which, why and what to do."""


class Paths(Struct, frozen=True):
    """The places of one run. Nothing is made until it is needed."""

    data: Path
    """The folder of conversations, statistics and snapshots."""
    config: Path
    """The settings file."""
    cache: Path
    """What can be deleted at any time."""

    @property
    def themes(self) -> Path:
        """The user's own themes, next to the settings file."""
        return self.config.parent / "themes"

    @property
    def personas(self) -> Path:
        """The user's own personas, next to the settings file."""
        return self.config.parent / "personas"

    @property
    def snippets(self) -> Path:
        """The user's own snippets, next to the settings file."""
        return self.config.parent / "snippets"

    @property
    def mcp_servers(self) -> Path:
        """The file of MCP servers where the settings name none, next to the settings file."""
        return self.config.parent / "mcp.json"

    @property
    def log(self) -> Path:
        """The log file that a report suggests; nothing is logged unless --log asks for it."""
        return self.data / "kvchat.log"


def original_of(name: str, *, numbered: bool = False) -> str:
    """The file of which this one is another version by its name, as programs call it that keep folders alike:
    Syncthing, Dropbox, Nextcloud, OneDrive. Empty: of none. `numbered`: also `notes 2.md` and `notes (1).md`, which
    people write too."""
    copy = _COPY.fullmatch(name)
    return "" if copy is None or (copy["number"] and not numbered) else copy["stem"] + (copy["suffix"] or "")


def find(data_dir: str | None = None, config_file: str | None = None, env: Mapping[str, str] = os.environ) -> Paths:
    """The places for these options of the command line, else of the environment, else the platform's own.
    Raises PathError."""
    data = (data_dir or env.get(DATA_VARIABLE, "")).strip()
    config = (config_file or env.get(CONFIG_VARIABLE, "")).strip()
    data_path = _given(data) if data else _platform("data")
    cache_path = data_path / "cache" if data else _platform("cache")
    return Paths(data_path, _given(config) if config else _platform("config") / "config.toml", cache_path)


def pasted_path(text: str) -> str | None:
    """The one path that a pasted text is: plain, in quotes, with backslashes, or as a file: address. None: it is
    something else."""
    text = text.strip()
    if not text or len(text) > LONGEST or "\n" in text or "\r" in text or not _BEGINS.match(text):
        return None
    if text.startswith("file://"):
        from urllib.parse import unquote, urlsplit

        try:
            return unquote(urlsplit(text).path) or None
        except ValueError:
            return None
    import shlex

    try:
        words = shlex.split(text)
    except ValueError:
        return text
    return words[0] if len(words) == 1 else text


def give_temp(data: Path) -> None:
    """Let a folder in the data folder `data` stand for the temp folder where none can be written, as on a read-only
    system: editors and pagers are given files there. Where it cannot be made, they say so."""
    places = [os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP")] + ["/tmp", "/var/tmp", "/usr/tmp"]
    with contextlib.suppress(OSError):
        usual = {os.path.abspath(place) for place in places if place}  # noqa: PTH100  links are not followed there
        if tempfile.gettempdir() in usual:  # else it is the working folder
            return
    with contextlib.suppress(PathError):
        os.environ["TMPDIR"] = str(folder(data / "tmp"))
        tempfile.tempdir = None


def give_home(data_dir: str | None = None, *, incognito: bool = False) -> None:
    """Let the data folder that was chosen stand for the home folder of a user who has none (no HOME, no entry in the
    list of users), as in a container; for an incognito run a private folder that ends with it. Raises PathError."""
    try:
        Path.home()
    except RuntimeError:
        if data := (data_dir or os.environ.get(DATA_VARIABLE, "")).strip():
            os.environ["HOME"] = str(_given(data))
        elif incognito:
            import atexit
            import shutil

            os.environ["HOME"] = tempfile.mkdtemp(prefix="kvchat-")
            atexit.register(shutil.rmtree, os.environ["HOME"], ignore_errors=True)


def last_resorts() -> Iterator[Path]:
    """The folders for what the data folder does not take, each looked for when its turn has come: any may be gone."""
    for find in (
        Path.home,
        tempfile.gettempdir,
        Path.cwd,
        lambda: os.environ["XDG_RUNTIME_DIR"],
        lambda: "/dev/shm",
    ):
        with contextlib.suppress(OSError, RuntimeError, KeyError):
            yield Path(find())


def own_themes() -> Path:
    """The folder of the themes that come with kvchat: inside the package, or two folders up in a checkout."""
    package = Path(__file__).resolve().parent
    inside = package / "themes"
    return inside if inside.is_dir() else package.parent.parent / "themes"


def folder(path: Path) -> Path:
    """`path` as an existing folder; it and the parents it lacks are made 0700. Raises PathError."""
    missing = [path]
    while not missing[-1].parent.exists() and missing[-1].parent != missing[-1]:
        missing.append(missing[-1].parent)
    try:
        for place in reversed(missing):
            with contextlib.suppress(FileExistsError):
                place.mkdir(mode=0o700)
                make_private(place)
    except OSError as error:
        raise PathError(
            f"The folder {path} cannot be made: {reason(error)}. Choose another with --data-dir or {DATA_VARIABLE}."
        ) from error
    if not path.is_dir():
        raise PathError(f"{path} is not a folder. Move it away, or choose another with --data-dir or {DATA_VARIABLE}.")
    return path


def make_private(path: Path) -> None:
    """Let only the owner read a file or folder, where its file system can: a share may refuse that."""
    with contextlib.suppress(OSError):
        path.chmod(0o700 if path.is_dir() else 0o600)


def is_missing(folder: Path) -> bool:
    """Whether there is certainly no such folder. Of one that cannot be examined, whoever reads it reports the error."""
    try:
        return not stat.S_ISDIR(folder.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def read_once(path: Path, most: int) -> Path:
    """`path`; where that is a pipe or a device, as `<(command)` and /dev/stdin are, a private file that lives as long
    as this process, with what comes through it, up to its end. May wait. Raises PathError: more than `most` bytes came,
    or it cannot be read."""
    try:
        if (own := _DESCRIPTOR.fullmatch(str(path))) is not None:
            source = os.dup(int(own[1] or 0))  # a socket has no path to open
        elif stat.S_ISFIFO(mode := path.stat().st_mode) or stat.S_ISCHR(mode):
            source = os.open(path, os.O_RDONLY)
        else:
            return path
        with os.fdopen(source, "rb") as file:
            if file.isatty() or stat.S_ISREG(os.fstat(source).st_mode):
                return path
            import atexit
            import shutil

            made = Path(tempfile.mkdtemp(prefix="kvchat-"))
            atexit.register(shutil.rmtree, made, ignore_errors=True)
            name = path.name if own is None else "pipe" if int(own[1] or 0) else "stdin"
            with (made / name).open("wb") as copy:
                left = most + 1
                while left and (part := file.read(min(left, 1 << 20))):
                    copy.write(part)
                    left -= len(part)
    except (FileNotFoundError, NotADirectoryError):
        return path  # it is said where a file is needed
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise PathError(f"{path} cannot be read: {why}.") from error
    if not left:
        raise PathError(f"More than {most >> 10:,} KiB came from {path}. Give less, or a file.")
    return made / name


_DESCRIPTOR = compiled_later(r"/dev/stdin|/(?:dev|proc/self)/fd/(\d+)")


def write_private(path: Path, data: bytes) -> None:
    """Replace `path` by a 0600 file that holds `data`: the old content or the new, never a part. A symbolic link
    stays one: what it points to is replaced; a pipe or a device is written into. Raises PathError, also where the owner
    made the file read-only."""
    target = Path(os.path.realpath(path))
    folder(target.parent)
    try:
        with contextlib.suppress(FileNotFoundError):
            mode = target.stat().st_mode
            if not stat.S_ISREG(mode):
                with target.open("wb") as file:
                    file.write(data)
                return
            if not mode & stat.S_IWUSR:
                raise PathError(f"{path} is read-only (chmod u+w makes it writable).")
        handle, part = open_part(target)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(target)
        finally:
            with contextlib.suppress(OSError):
                part.unlink()
        sync_folder(target.parent)
    except OSError as error:
        raise PathError(f"{path} cannot be written: {reason(error)}.") from error


LEFT_SECONDS = 60.0
"""A part that is older was left by a write that was killed."""


def open_part(target: Path) -> tuple[int, Path]:
    """A new 0600 file in the folder of `target`, open for writing, that is to replace it. An old one that a killed
    write of the same file has left is removed. Raises OSError."""
    import time
    from hashlib import blake2b

    part = target.with_name(f".kvchat-{blake2b(os.fsencode(target.name), digest_size=8).hexdigest()}.part")
    with contextlib.suppress(OSError):
        if time.time() - part.lstat().st_mtime > LEFT_SECONDS:
            part.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(part, flags, 0o600), part
    except FileExistsError:  # another one is written just now
        part = part.with_stem(f"{part.stem}-{os.urandom(4).hex()}")
        return os.open(part, flags, 0o600), part


def reason(error: OSError) -> str:
    """Why a file operation failed, in words."""
    return (error.strerror or type(error).__name__).lower()


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable, as far as the system can."""
    with contextlib.suppress(OSError):  # the file is in place all the same
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _given(text: str) -> Path:
    if "\0" in text:
        raise PathError("A path cannot hold a NUL character.")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise PathError(f"{text} cannot be used: there is no such user's home folder.") from error


def _platform(kind: str) -> Path:
    import platformdirs

    try:
        Path.home()
    except RuntimeError:
        raise PathError(f"This user has no home folder. Set HOME, or {DATA_VARIABLE} (--data-dir).") from None
    places = platformdirs.PlatformDirs("kvchat", appauthor=False)
    match kind:
        case "data":
            return places.user_data_path
        case "config":
            return places.user_config_path
        case _:
            return places.user_cache_path
