"""Every setting there is, with its default and its words for the user.

This module is the only list of settings; those of a server are declared in `server`, once for `[server]` and
all profiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from msgspec import Struct, structs

from kvchat.config.option import Option, OptionKind, Spec, flag, text, texts, whole
from kvchat.config.server import PROFILE_NAME, ServerSettings, command, tool_name
from kvchat.config.source import Key
from kvchat.prompt.request import Parameters
from kvchat.text.options import reserved_words


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The built-in engine, used when no server answers."""

    model: str = text("", "The model file to load (GGUF).", example="~/models/qwen3-1.7b-q4_k_m.gguf", routes=True)
    context_size: int = whole(
        0,
        "Tokens that fit in one conversation; more take more memory. 0: what the model was made for, at most 8192.",
        0,
        1 << 20,
    )
    slots: int = whole(1, "Conversations the engine keeps ready at the same time. Each takes memory.", 1, 64)
    threads: int = whole(0, "Threads to compute with. 0: decided by the machine's cores.", 0, 1024)
    batch_size: int = whole(
        512, "Tokens prefilled in one batch. Smaller: Esc stops sooner. Larger: long prompts prefill faster.", 16, 8192
    )
    snapshots: bool = flag(True, "Keep snapshots on disk, so that nothing is prefilled again after a restart.")


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """How the server's cache is looked after."""

    warm_up: bool = flag(
        True, "Prefill a conversation while you look at it or type, so that the answer starts at once."
    )
    warm_up_on_battery: bool = flag(False, "Warm up on battery power too.")
    detour: bool = flag(
        True, "Send a tiny request in between where that makes the server find a conversation it has parked."
    )
    token_ids: bool = flag(
        False,
        "Send prompts to llama.cpp as token ids where the model's template drops earlier reasoning, or the steps of "
        "tools, and has no option that keeps it: all of it stays in the prompt, and nothing is prefilled again for it.",
    )
    kept_gb: int = whole(
        4,
        "Gigabytes on disk that the states may take that you keep (/keep). When they are full, "
        "nothing is dropped: kvchat says what to release.",
        0,
        10000,
    )
    compact_at: int = whole(85, "Percent of the window from which compacting the conversation is offered.", 30, 99)
    summary_at_rest: bool = flag(
        False,
        "Write the summary for /compact in spare time once the window is over 70 % full, so that compacting takes "
        "no time. Any key ends it, and it is never put in place by itself.",
    )


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """What is remembered over conversations, and when kvchat works on it."""

    enabled: bool = flag(
        True, "Remember what you say about yourself and your work, in files of your own. An incognito run never does."
    )
    folder: str = text(
        "",
        "The folder of the memory's Markdown files. Empty: `memory` next to the conversations.",
        example="~/notes/kvchat",
    )
    every_messages: int = whole(4, "A conversation is read for memories after this many new messages.", 2, 1000)
    worth_tokens: int = whole(
        800, "But not before they have about this many tokens: asking for memories takes some 115 more.", 0, 1 << 20
    )
    every_tokens: int = whole(2000, "Or after about this many new tokens.", 100, 1 << 20)
    most_messages: int = whole(
        40, "After this many, at the next moment in which no answer runs, even while you type.", 4, 10000
    )
    rest_seconds: int = whole(
        3,
        "Seconds after an answer, and after the last key, before background work begins; "
        "0: at once, but never while you type.",
        0,
        3600,
    )
    idle_seconds: int = whole(60, "Seconds without an answer after which what is left is done.", 5, 86400)
    profile: str = text(
        "",
        "The profile whose server does the background work. Empty: the conversation's own server, "
        "which has most of it in its cache.",
        example="small",
    )
    on_cloud: bool = flag(
        False, "Send memories to services on the internet too, and do background work there, which costs money."
    )
    recall: bool = flag(True, "Put memories that belong to a question in front of it.")
    recall_tokens: int = whole(200, "Tokens that the memories of one question may have, about.", 20, 4096)
    profile_tokens: int = whole(400, "Tokens of the profile that the first question carries, about. 0: none.", 0, 4096)
    skills: bool = flag(
        False,
        "After the memories, ask for procedures that worked too: when, the steps, why. Each is pending until "
        "you approve it, and then comes back with the task that it is for.",
    )
    skill_tokens: int = whole(300, "Tokens that the skills of one question may have, about. 0: none.", 0, 4096)
    episodes: bool = flag(
        False,
        "Sum up what was talked about, topic by topic and by date, in files of its own. No question carries any of it.",
    )
    consolidate: bool = flag(True, "Tidy the memory when idle: merge what says the same, correct what is outdated.")


@dataclass(frozen=True, slots=True)
class TitleSettings:
    """Who gives conversations their titles."""

    by_model: bool = flag(
        False,
        "Ask the model for a conversation's title once, when you have seen a whole answer: with the request for "
        "memories, or by a small one of its own where memory is off. Your own titles stay. false: your first "
        "words are the title.",
    )


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """Files that are made of conversations by themselves."""

    mirror_folder: str = text(
        "",
        "A folder in which kvchat keeps a Markdown file of every conversation: written whenever that changes, "
        "removed when it is deleted, never read back. Files of yours there stay as they are. Empty: none.",
        example="~/notes/chats",
    )


@dataclass(frozen=True, slots=True)
class DocumentSettings:
    """Which files are indexed, and how much of them a question carries."""

    passages: int = whole(6, "Passages that a question carries at most.", 1, 50)
    budget_percent: int = whole(10, "Percent of the window that the passages of a question may take.", 1, 50)
    attach_percent: int = whole(25, "Percent of the window that a file attached as a whole may take.", 1, 90)
    largest_file_mb: int = whole(20, "Larger files are not indexed.", 1, 1000)
    hidden: bool = flag(False, "Index files and folders whose names begin with a dot too.")
    watch: bool = flag(True, "Look for changed files while kvchat runs, and index them.")


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Where the tool web_search looks. Without either it asks DuckDuckGo and others, with the extra search."""

    searxng_url: str = text(
        "", "A SearXNG server, whose settings.yml has json in search.formats.", example="http://127.0.0.1:8888"
    )
    brave_key_env: str = text(
        "", "The name of the environment variable that holds a key of Brave Search.", example="BRAVE_KEY"
    )


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """Where vectors for the search come from. Without them it finds by words alone."""

    base_url: str = text(
        "",
        "A server with /v1/embeddings. Never the chat's own: there it would empty the cache. "
        "Empty: the built-in engine, if `model` is a file.",
        example="http://127.0.0.1:8081",
    )
    model: str = text(
        "",
        "The embedding model to ask for. Empty: the one the server has loaded. Without a server: the "
        "file (GGUF) of an embedding model, run by the built-in engine while it is needed.",
        example="~/models/nomic-embed-text-v1.5.Q8_0.gguf",
    )
    api_key_env: str = text(
        "", "The name of the environment variable that holds its API key.", example="EMBEDDINGS_KEY"
    )

    @property
    def local_model(self) -> str:
        """The model file that the built-in engine is to run for vectors; empty: none."""
        return "" if self.base_url or not self.model.lower().endswith(".gguf") else self.model


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run."""

    theme: str = text(
        "auto",
        "The colours. auto: kvchat-day where the terminal's background is light, else kvchat-night. /theme "
        "lists them and shows each.",
    )
    plain: bool = flag(False, "Line by line in place of the app, for screen readers (kvchat --plain).")
    enter_sends: bool = flag(
        True, "Enter sends and Ctrl+J makes a new line; false: Enter makes a new line and Ctrl+J sends."
    )
    sidebar: bool = flag(True, "Show the list of conversations where the window has room.")
    cache_panel: bool = flag(True, "Show what the server holds, from 150 columns on.")
    show_reasoning: bool = flag(False, "Show a model's reasoning unfolded.")
    time_stamp: bool = flag(
        True,
        "Tell the model the time: one line in a message, never in the system prompt, so that nothing is "
        "prefilled again for it.",
    )
    time_stamp_minutes: int = whole(
        10, "Minutes after which a message carries the time again. It always does when the date has changed.", 1, 10080
    )
    system_prompt: str = text(
        "",
        "The instructions that new conversations begin with. Empty: a short standard one.",
        example="Answer briefly.",
    )
    tools: tuple[str, ...] | None = texts(
        "The tools that the model may call in new conversations: files, documents, web, python, or an MCP server of "
        "yours. Each call is asked for first. They stand at the head of every prompt of such a conversation.",
        tool_name,
        example=("files", "documents"),
    )
    mcp_file: str = text(
        "",
        "The file of your MCP servers, as other programs have it (mcpServers). Empty: mcp.json next to the settings.",
        example="~/.cursor/mcp.json",
    )
    tool_seconds: int = whole(
        30,
        "Seconds that a call of a tool may take, your word not counted. `timeout` of a server in mcp.json comes first; "
        "what a server tells of its progress begins them again.",
        1,
        3600,
    )
    editor: str = text("", "The editor for long messages. Empty: $VISUAL, else $EDITOR.", command, example="nano")
    vi_keys: bool = flag(
        False,
        "Keys of vi in the conversation: g and G go to the first and the last message, / finds, n and N go to "
        "the next and the previous match. false: these letters begin a message.",
    )
    mouse: bool = flag(True, "Use the mouse. false: the terminal selects text as usual.")
    keyboard_protocol: bool = flag(
        True,
        "Ask the terminal to tell keys apart (kitty's protocol): Shift+Enter, and Ctrl with the letters of any layout. "
        "false: where AltGr types nothing, as in some versions of Windows Terminal.",
    )
    notify: bool = flag(
        True,
        "Ring the bell when an answer ends while you look elsewhere, and show a desktop notification while the "
        "terminal's window is not in front (not in tmux or screen).",
    )
    progress: bool = flag(
        True, "Show in the terminal's tab or taskbar how much of a prompt is prefilled (not in tmux or screen)."
    )
    default_profile: str = text(
        "",
        "The profile whose server new conversations begin with. Empty: the server of [server].",
        example="work",
        routes=True,
    )
    server: ServerSettings = field(default_factory=ServerSettings)
    profiles: Mapping[str, ServerSettings] = field(default_factory=dict)
    """Further servers by their names, in the order of the file."""
    engine: EngineSettings = field(default_factory=EngineSettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    titles: TitleSettings = field(default_factory=TitleSettings)
    export: ExportSettings = field(default_factory=ExportSettings)
    documents: DocumentSettings = field(default_factory=DocumentSettings)
    web: WebSettings = field(default_factory=WebSettings)
    embeddings: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    parameters: Parameters = field(default_factory=Parameters)
    """Sampling parameters of new conversations."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys by action, where they differ from the defaults: `{"export": "f4,ctrl+e"}`."""


SECTIONS = {
    "server": "The model server. Options of the command line and KVCHAT_ variables come before these.",
    "profiles": "Further servers, each by a name of its own.",
    "engine": "The built-in engine, used when no server answers.",
    "cache": "How the server's cache is looked after.",
    "memory": "What is remembered over conversations, and when kvchat works on it.",
    "titles": "Who gives conversations their titles.",
    "export": "Files that are made of conversations by themselves.",
    "documents": "Which files are indexed, and how much of them a question carries.",
    "web": "Where the tool web_search looks. Without either it asks DuckDuckGo and others, with the extra search.",
    "embeddings": "Where vectors for the search come from. Without them it finds by words alone.",
    "parameters": "How answers are sampled in new conversations. What is left out, the server decides.",
    "parameters.extra": "Further fields to send with each request, as they are.",
    "keys": "Keys of actions; several are separated by commas. The help has the names and the defaults.",
}

PARAMETERS = {
    "temperature": Spec(
        OptionKind.NUMBER,
        "0 always takes the likeliest word; higher is freer.",
        0,
        5,
        brief="0 = predictable, 1 = creative",
        example=0.7,
    ),
    "top_p": Spec(
        OptionKind.NUMBER,
        "Only the likeliest words that make up this share are considered.",
        0,
        1,
        brief="tokens that make up this share: 0.95",
        example=0.95,
    ),
    "top_k": Spec(
        OptionKind.WHOLE,
        "Only this many of the likeliest words are considered. 0: all.",
        0,
        1 << 20,
        brief="only the best so many tokens: 40",
        example=40,
    ),
    "min_p": Spec(
        OptionKind.NUMBER,
        "Words less likely than this share of the likeliest are left out.",
        0,
        1,
        brief="drop tokens below this share of the best",
        example=0.05,
    ),
    "presence_penalty": Spec(
        OptionKind.NUMBER,
        "Above 0: avoids words that were said.",
        -2,
        2,
        brief="discourages any repeat",
        example=0.0,
    ),
    "frequency_penalty": Spec(
        OptionKind.NUMBER,
        "Above 0: avoids words the more often they were said.",
        -2,
        2,
        brief="discourages frequent repeats",
        example=0.0,
    ),
    "repeat_penalty": Spec(
        OptionKind.NUMBER,
        "Above 1: avoids repetition (llama.cpp).",
        0,
        10,
        brief="discourages repetition; 1 = off",
        example=1.0,
    ),
    "seed": Spec(
        OptionKind.WHOLE,
        "The same seed gives the same answer, on most servers.",
        -1,
        2**32 - 1,
        brief="same seed, same answer",
        example=42,
    ),
    "max_tokens": Spec(
        OptionKind.WHOLE,
        "An answer stops after this many tokens.",
        1,
        10_000_000,
        brief="longest answer, in tokens",
        example=1024,
    ),
    "stop": Spec(
        OptionKind.TEXTS,
        "An answer stops before any of these texts.",
        brief='ends an answer: END, or ["###", "\\n"]',
        example=["###"],
    ),
    "response_format": Spec(
        OptionKind.TABLE,
        "The shape of answers, sent as it is.",
        brief='text, json, or {"type": …}',
        named={"text": {"type": "text"}, "json": {"type": "json_object"}},
        example={"type": "json_object"},
    ),
    "extra": Spec(
        OptionKind.TABLE,
        SECTIONS["parameters.extra"] + " Not those of the prompt, the session or the stream.",
        entry=lambda name, value: reserved_words(name),
        brief='sent as they are: mirostat = 2, or {"mirostat": 2}',
        example={"mirostat": 2},
    ),
}
"""The sampling parameters, by the names of `Parameters`."""


def declared(holder: Key, defaults: object) -> list[Option]:
    """The settings that a dataclass declares."""
    assert is_dataclass(defaults)
    return [
        Option(holder, item.name, getattr(defaults, item.name), item.metadata["spec"])
        for item in fields(defaults)
        if "spec" in item.metadata
    ]


def sampling(holder: Key) -> list[Option]:
    """The sampling parameters in the section `holder`."""
    return [Option(holder, name, getattr(Parameters(), name), spec) for name, spec in PARAMETERS.items()]


def server_options(holder: Key) -> list[Option]:
    """The settings of a server in the section `holder`, with those of its own parameters."""
    return [*declared(holder, ServerSettings()), *sampling((*holder, "parameters"))]


def _options() -> tuple[Option, ...]:
    return (
        *declared((), Settings()),
        *declared(("server",), ServerSettings()),
        *declared(("engine",), EngineSettings()),
        *declared(("cache",), CacheSettings()),
        *declared(("memory",), MemorySettings()),
        *declared(("titles",), TitleSettings()),
        *declared(("export",), ExportSettings()),
        *declared(("documents",), DocumentSettings()),
        *declared(("web",), WebSettings()),
        *declared(("embeddings",), EmbeddingSettings()),
        *sampling(("parameters",)),
        Option((), "keys", {}, Spec(OptionKind.KEYS, SECTIONS["keys"])),
    )


OPTIONS = _options()
"""Every setting, in the order of the file, but for those of profiles and of `[server.parameters]`."""
BY_PATH: Mapping[str, Option] = {option.path: option for option in OPTIONS}
_BY_KEY = {option.key: option for option in (*OPTIONS, *sampling(("server", "parameters")))}
_OF_PROFILE = {option.key: option for option in server_options(())}


_SECTIONS = (
    ("server",),
    ("server", "parameters"),
    ("profiles",),
    ("engine",),
    ("cache",),
    ("memory",),
    ("titles",),
    ("export",),
    ("documents",),
    ("web",),
    ("embeddings",),
    ("parameters",),
)


def opens(key: Key) -> bool:
    """Whether the table at `key` is a section, whose settings stand one by one."""
    match key:
        case ("profiles", name, *rest):
            return bool(PROFILE_NAME.fullmatch(name)) and rest in ([], ["parameters"])
        case _:
            return key in _SECTIONS


def option_at(key: Key) -> Option | None:
    """The setting at `key`; None: there is none."""
    if len(key) < 3 or key[0] != "profiles":
        return _BY_KEY.get(key)
    option = _OF_PROFILE.get(key[2:]) if opens(key[:2]) else None
    return option and structs.replace(option, holder=(*key[:2], *option.holder))


def key_of(path: str) -> Key:
    """The key of the setting that sentences name `path`: a profile's name may hold dots. Raises KeyError."""
    parts = path.split(".")
    for length in (2, 1):
        key = ("profiles", ".".join(parts[1:-length]), *parts[-length:])
        if parts[0] == "profiles" and option_at(key):
            return key
    if option_at(tuple(parts)) is None:
        raise KeyError(path)
    return tuple(parts)


def value_of(settings: Settings, option: Option) -> object:
    """The value of a setting."""
    found: Any = settings
    for step in option.key:
        found = found[step] if isinstance(found, Mapping) else getattr(found, step)
    return found


def changed(settings: Settings, path: str, value: object) -> Settings:
    """The settings with one of them changed; `value` must be fitted. Raises KeyError for an unknown path."""
    return changed_at(settings, key_of(path), value)


def changed_at(settings: Settings, key: Key, value: object) -> Settings:
    """The settings with the one at `key` changed; a profile that is not there begins with it."""
    found: Settings = changed_in(settings, key, value)
    return found


def changed_in(holder: Any, key: Key, value: object) -> Any:
    """A section, with what it holds, with the value at `key` changed."""
    step, *rest = key
    if isinstance(holder, Mapping):
        return {**holder, step: changed_in(holder.get(step, ServerSettings()), tuple(rest), value)}
    new = changed_in(getattr(holder, step), tuple(rest), value) if rest else value
    return (structs.replace if isinstance(holder, Struct) else replace)(holder, **{step: new})
