"""What is said about a name in the settings file that is no setting: where it belongs, or what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kvchat.config.option import Option
from kvchat.config.server import PROFILE_NAME
from kvchat.config.settings import OPTIONS, SECTIONS, opens, server_options
from kvchat.config.source import Key
from kvchat.config.toml import written_key
from kvchat.sanitize import one_line

_GONE = {
    ("cache", "compact_at_rest"): "is gone: with cache.summary_at_rest a summary is prepared, and /compact puts it in "
    "place",
}
"""Settings of earlier versions, and what there is in their place."""
_KEY_NAMES = ("api_key", "apikey", "key", "token", "password", "secret")


def unknown(key: Key, value: object) -> str:
    """The sentence about a value at `key` that is no setting."""
    name = one_line(".".join(key), 60)
    if opens(key):
        wanted = "profiles.NAME" if key == ("profiles",) else _header(key)
        return f"{name} must be a section: [{wanted}] on a line of its own, its settings below"
    if key[0] == "profiles" and len(key) == 2:
        return (
            f"{name} is not used: a profile's name is made of at most 64 letters, digits, - _ and ., and does not "
            "end in .gguf"
        )
    if len(key) == 1 and isinstance(value, Mapping):
        near = nearest(key[0], [section for section in SECTIONS if "." not in section])
        return f"unknown section [{name}]" + (f"; did you mean [{near}]?" if near else "; it is not used")
    if key in _GONE:
        return f"{name} {_GONE[key]}"
    if key[-1].lower() in _KEY_NAMES:
        return (
            f"kvchat keeps no keys in files: remove {name}, put the key in an environment variable and its name in "
            "api_key_env, or set api_key_command"
        )
    return f"unknown setting {name}{_meant(key, value)}"


def barred(key: Key, value: object) -> Key:
    """The setting of a server that is misspelt, or in the wrong place, at `key`, as `Problem.bars` has it: what is
    unknown below a server, and elsewhere what resembles or holds a server's setting. Empty: it is a matter of taste."""
    if key[0] == "server" or (key[0] == "profiles" and len(key) > 1):
        return key
    if key == ("profiles",):
        return ("server", *key)
    if isinstance(value, Mapping) and len(key) == 1:
        names = {option.name for option in server_options(())}
        near = nearest(key[0], ("server", "profiles", *(s for s in SECTIONS if "." not in s)))
        return ("server", *key) if near in ("server", "profiles") or names & set(value) else ()
    routes = [option for option in (*server_options(("server",)), *OPTIONS) if option.spec.routes]
    found = nearest(key[-1], {option.name for option in routes})
    return ("server", *key) if found else ()


def _meant(key: Key, value: object) -> str:
    profile = key[:2] if key[0] == "profiles" else ()
    server = profile or (("server",) if key[0] == "server" else ())
    known = (*server_options(server), *OPTIONS) if server else OPTIONS
    home = next((option for option in known if option.name == key[-1]), None)
    if home is not None:
        where = f"under [{_header(home.holder)}]" if home.holder else "at the top, above the first [section]"
        return f"; {key[-1]} belongs {where}"
    if profile and isinstance(value, Mapping) and PROFILE_NAME.fullmatch(quoted := ".".join(key[1:])):
        return f"; a profile's name with a dot stands in quotes: [{_header(('profiles', quoted))}]"
    near = _near(key, known)
    return f"; did you mean {near}?" if near else "; it is not used"


def _near(key: Key, known: Sequence[Option]) -> str | None:
    """The setting that was probably meant: one of the same section rather than of another."""
    siblings = [option for option in known if option.holder == key[:-1]]
    for options in (siblings, known):
        if name := nearest(key[-1], [option.name for option in options]):
            return next(option.path for option in options if option.name == name)
    return nearest(key[0], [option.path for option in known]) if len(key) == 1 else None


def _header(holder: Key) -> str:
    return ".".join(map(written_key, holder))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be."""
    import difflib  # only needed after a mistake

    found = difflib.get_close_matches(name[:80].lower(), list(known), 1, 0.7)
    return found[0] if found else None
