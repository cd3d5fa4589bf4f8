"""The settings in words: the example file, `kvchat config show`, and the table for the documentation.

All three are made from the one list of settings, and the first two are TOML that loads.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from kvchat.config.option import Option, OptionKind
from kvchat.config.settings import OPTIONS, SECTIONS, Settings, server_options, value_of
from kvchat.config.source import Key
from kvchat.config.toml import written, written_key
from kvchat.sanitize import clean

_WIDTH = 96


def example() -> str:
    """A settings file with every setting, its words and its default, commented out."""
    head = (
        "# The settings of kvchat. Each line that begins with # is a comment: take the # away to set a value.\n"
        "# The file is read when kvchat starts.\n"
    )
    return head + "\n" + described(Settings())


def described(settings: Settings) -> str:
    """Every setting with its words; those that differ from their defaults are active, the others comments. Of a
    profile, what is set. Passwords in addresses and the values of headers are left out."""
    parts = []
    for section in (
        "",
        "server",
        "engine",
        "cache",
        "memory",
        "titles",
        "export",
        "documents",
        "web",
        "embeddings",
        "parameters",
        "keys",
    ):
        if section:
            parts.append(f"{_comment(SECTIONS[section])}[{section}]\n")
        if section == "keys":
            keys = "".join(f"{written_key(action)} = {written(keys)}\n" for action, keys in settings.keys.items())
            parts.append(keys or '# export = "f4"\n')
        parts += [
            _comment(option.spec.doc) + _line(settings, option)
            for option in OPTIONS
            if option.section == section and option.spec.kind is not OptionKind.KEYS
        ]
    return "\n".join([*parts, *_servers(settings)])


def table() -> str:
    """Every setting as a Markdown table."""
    rows = ["| setting | default | |", "|---|---|---|"]
    for option in OPTIONS:
        default = option.default
        shown = "" if default in (None, "", (), {}) else f"`{_value(default)}`"
        rows.append(f"| `{option.path}` | {shown} | {option.spec.doc.replace('|', chr(92) + '|')} |")
        if option.key == _LAST_OF_SERVER:
            rows += [f"| `{name}` | | {doc} |" for name, doc in _REPEATED.items()]
    return "\n".join(rows) + "\n"


_LAST_OF_SERVER = [option.key for option in OPTIONS if option.section == "server"][-1]
_REPEATED = {
    "server.parameters.*": "Sampling parameters of new conversations on this server: the same as `[parameters]`, put "
    "over those.",
    "profiles.NAME.*": "A further server by a name of its own: the same settings as `[server]`; `base_url` is needed.",
}
_SAMPLE = """
# A further server, by a name of its own: the same settings as in [server].
# [profiles.work]
# base_url = "http://10.0.0.5:8000"
# headers = {X-Team = "research"}
# [profiles.work.parameters]
# temperature = 0.2
""".lstrip()


def _servers(settings: Settings) -> Iterator[str]:
    """The parameters of `[server]` and the profiles: what is set of them."""
    for holder in (("server",), *(("profiles", name) for name in settings.profiles)):
        if holder != ("server",):
            yield f"{_comment(SECTIONS['profiles'])}{_section(settings, holder, server_options(holder))}"
        sampling = (*holder, "parameters")
        if section := _section(settings, sampling, server_options(holder)):
            yield section
    if not settings.profiles:
        yield _SAMPLE


def _section(settings: Settings, holder: Key, options: Sequence[Option]) -> str:
    """The settings in this section that differ from their defaults; nothing where none does."""
    lines = [
        _line(settings, option)
        for option in options
        if option.holder == holder and value_of(settings, option) != option.default
    ]
    return "".join([f"[{'.'.join(map(written_key, holder))}]\n", *lines]) if lines else ""


def _line(settings: Settings, option: Option) -> str:
    """The line of a setting in the file, a comment where it is at its default."""
    value = value_of(settings, option)
    if option.spec.secret and isinstance(value, Mapping) and value:
        return f"# {option.name}: {', '.join(value)} (set; the values are not shown)\n"
    if value != option.default:
        return f"{option.name} = {_value(value)}\n"
    sample = option.spec.example if option.default in (None, "", (), {}) else option.default
    return f"# {option.name} = {_value(sample)}\n"


def in_words(option: Option, value: object) -> str:
    """A value on one line, as the screen and `kvchat config get` show it: a text as it is, else as in the file. Nothing
    is shown of headers but their names, nor of a password in an address."""
    if option.spec.secret and isinstance(value, Mapping):
        return f"{', '.join(value)} (values not shown)" if value else "none"
    if value is None:
        return "not set"
    if value == "":
        return "empty"
    if value == {}:
        return "none"
    return clean(_without_password(value)) if isinstance(value, str) else _value(value)


def _comment(doc: str) -> str:
    return textwrap.indent(textwrap.fill(doc, _WIDTH) + "\n", "# ")


def _without_password(text: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//", text)


def _value(value: object) -> str:
    if isinstance(value, str):
        value = clean(_without_password(value))
    if isinstance(value, Mapping):
        value = dict(value)
    return written(value)
