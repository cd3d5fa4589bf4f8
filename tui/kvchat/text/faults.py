"""What went wrong with a server, in words: what happened, at which server, and what to do, in the app as on the command
line.

The rule: a kind and its arguments become one sentence here and nowhere else. What a server said is an argument that was
made one clean, short line before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum, auto

from kvchat.text.format import duration
from kvchat.text.place import here, on_command_line

Value = str | int | float | bool | None
_STATUS = " ({status}){said}"


class Fault(StrEnum):
    """What went wrong. The words name the arguments: `url`, `status`, and `said` for the server's own words."""

    TOLD = auto()  # sentence: by another part of kvchat
    # no answer
    NOT_CONNECTED = auto()
    NO_ANSWER = auto()
    NO_PROFILE = auto()  # name
    NO_SERVER = auto()  # asked, unusable: where it was looked, embedded: whether there is an engine
    BAD_CERTIFICATE = auto()
    CERTIFICATE_FILE = auto()
    LOADING = auto()
    CUT = auto()
    UNFINISHED = auto()  # reason: the server's word for it
    NO_TLS = auto()
    ONLY_TLS = auto()
    CUT_BEFORE = auto()
    NOT_SENT = auto()
    NOT_IN_TIME = auto()
    DEAD = auto()
    # an answer that is none
    PROTOCOL = auto()  # what: it sent
    NOT_JSON = auto()
    REDIRECT = auto()
    ENCODED = auto()
    UNEXPECTED = auto()
    UNFORESEEN = auto()
    STREAM_ERROR = auto()
    # a refusal
    UNKNOWN_FIELD = auto()
    NO_KEY = auto()
    WRONG_KEY = auto()
    NO_ACCESS = auto()
    NO_CREDIT = auto()
    TOO_MANY = auto()  # seconds: after which it may be tried again; None: not known
    NO_MODEL = auto()
    NO_PATH = auto()
    TOO_LARGE = auto()
    UNAVAILABLE = auto()
    BEHIND_PROXY = auto()
    FAILED = auto()
    REFUSED = auto()
    ROLES = auto()
    TOO_LONG = auto()  # prompt, window: tokens; least: whether the prompt has at least so many
    WINDOW_FULL = auto()  # with_figures: whether the server told the prompt's and the window's tokens
    OWN_WINDOW_FULL = auto()  # prompt, window: tokens, None: not known
    NOT_AS_JSON = auto()
    IMAGE_GONE = auto()
    PAID_FOR = auto()
    NO_SUCH_MODEL = auto()  # model, models
    ENDLESS = auto()
    # of a kind of server
    PROGRAM = auto()  # title: of the program, told: what is said of it
    NOTHING_SAID = auto()
    INTERRUPTED = auto()
    NOT_LOADED = auto()
    NOT_FOLLOWED = auto()
    STARTED_WITHOUT_MODEL = auto()
    NOT_BEGUN = auto()
    MODEL_MISSING = auto()
    NO_MODEL_YET = auto()
    NOT_SIGNED_IN = auto()
    # an address or a key
    URL_WITH_USER = auto()
    URL_UNREADABLE = auto()
    URL_PORT = auto()
    URL_SCHEME = auto()
    URL_HOST = auto()
    URL_QUERY = auto()
    URL_PATH = auto()
    URL_ZONE = auto()
    URL_NAME = auto()
    URL_ADDRESS = auto()  # why: one of the three below, address
    SERVER_ADDRESS = auto()  # as before
    METADATA_ADDRESS = auto()
    NOWHERE_ADDRESS = auto()  # unspecified: whether it is 0.0.0.0 or ::
    SHORT_ADDRESS = auto()
    UNKNOWN_NAME = auto()
    NAME_LEADS_NOWHERE = auto()
    PLAIN_KEY = auto()
    BAD_KEY = auto()
    BAD_PROXY = auto()
    # of vectors
    TEXT_TOO_LONG = auto()
    PLAIN_VECTOR_KEY = auto()
    NO_SEPARATE_MODEL = auto()
    SAME_SERVER = auto()
    OTHER_VECTORS = auto()
    NO_VECTORS = auto()
    VECTORS_LOADING = auto()
    VECTORS_ENDED = auto()
    VECTORS_NOT_STARTED = auto()
    ENDING = auto()


class Unread(StrEnum):
    """What a server sent that cannot be read: the end of "The server at ... sent ..." (`Fault.PROTOCOL`)."""

    NO_JSON = "something that is not JSON"
    NO_HTTP = "something that is not HTTP"
    WEB_PAGE = "a web page"
    OTHER = "something else"
    NO_OBJECT = "{what} that is not an object"
    NO_LIST = "{what} that is not a list"
    NO_TEXT = '"{key}" that is not text'
    NO_TOKENS = "tokens that are not numbers"
    TOO_MANY_TOKENS = "a slot with more tokens than any window has"
    TOO_LARGE = "an answer in which {what} is larger than {mib} MiB"
    # vectors
    VECTORS_TOO_LARGE = "more than {mib} MiB of vectors"
    VECTOR_ERROR = "an error instead of vectors ({said})"
    VECTORS_MISSING = "{count} vectors for {texts} texts"
    VECTOR_LENGTHS = "vectors of several lengths"
    NO_VECTOR = "a vector that is not a list of numbers"
    VECTOR_INFINITE = "a vector with a number that is too large"


class Unreached(StrEnum):
    """Why no connection was made, where the system has no words for it (`Fault.NOT_CONNECTED`)."""

    SILENT = "no answer to the connection"
    PROXY = "the proxy refused the connection"
    REFUSED = "connection refused"
    NO_ADDRESS = "it has no address"
    TLS = "the encrypted connection failed: {error}"
    FAILED = "the connection failed"


BUILT_IN = "built-in engine"
"""Stands for the URL of kvchat's own server, whose address says nothing to the person."""
_PARAMETERS = "the conversation's parameters and "
_IN_APP = {
    "address": "(/model)",
    "model_setting": "(/model)",
    "key": "(server.api_key_env in the settings)",
    "key_variable": "(api_key_env in the settings)",
    "parameters": _PARAMETERS,
}
_IN_COMMAND = {
    "address": "(--base-url)",
    "model_setting": "(--model)",
    "key": "(--api-key-env, or server.api_key_env in the settings)",
    "key_variable": "(--api-key-env, or api_key_env in the settings)",
    "parameters": _PARAMETERS,
}
_EMBEDDINGS = {
    "address": "(embeddings.base_url in the settings)",
    "model_setting": "(embeddings.model in the settings)",
    "key": "(embeddings.api_key_env in the settings)",
    "key_variable": "(embeddings.api_key_env in the settings)",
    "parameters": "",
}
"""Where a server is set: for a conversation in the app and on the command line, and for vectors."""
ROOM = "give the server a larger context (llama-server: -c, built-in engine: engine.context_size)"
_SETTING = "(embeddings.model in the settings)"
_LOG = "Try again; if it stays so, look at the server's log."

_SENTENCES: dict[Fault, str] = {
    Fault.TOLD: "{sentence}",
    Fault.NO_ANSWER: "The {server} accepted the connection but did not answer within {seconds:g} s. It may hang; look "
    "at its log or restart it.",
    Fault.BAD_CERTIFICATE: "The certificate of {url} cannot be trusted ({reason}). If the server has its own "
    "certificate authority, name its file in the setting server.ca_file.",
    Fault.CERTIFICATE_FILE: 'The certificate file "{file}" cannot be read ({reason}). Correct the setting '
    "server.ca_file.",
    Fault.LOADING: "The {server} is still loading its model. Wait until that is done, then try again.",
    Fault.CUT: "The connection to {url} broke before the answer was complete. What came is kept; try again for a "
    "whole answer.",
    Fault.UNFINISHED: "The {server} ended the answer{because}: it may not be whole. What came is kept; try again for a "
    "whole answer.",
    Fault.NO_TLS: "The {server} does not encrypt. Write its address with http:// {address}.",
    Fault.ONLY_TLS: "The {server} answers encrypted connections only. Write its address with https:// {address}.",
    Fault.CUT_BEFORE: "The {server} closed the connection before it answered. Look at its log, then try again.",
    Fault.NOT_SENT: "The {server} stopped accepting the request while it was sent. Try again.",
    Fault.NOT_IN_TIME: "The {server} did not answer {path} in time.",
    Fault.DEAD: "The {server} has stopped answering: three health checks in a row failed. Restart it, then try again.",
    Fault.PROTOCOL: "The {server} sent {what}, so the answer cannot be read. Try again; if it stays so, update the "
    "server.",
    Fault.NOT_JSON: "The {server} answered with something that is not a chat answer. Check that this is the address "
    "of a model server {address}.",
    Fault.REDIRECT: "The {server} points to another address: {target}. kvchat follows no redirect; if you trust that "
    "address, choose it as the server {address}.",
    Fault.ENCODED: 'The {server} sent a compressed answer ("{encoding}") that was not asked for. Turn compression '
    "off in the proxy before it.",
    Fault.UNEXPECTED: "The request to {url} failed in an unexpected way ({error}). Try again.",
    Fault.UNFORESEEN: "kvchat failed while it read the answer ({error}). The text is kept.",
    Fault.UNKNOWN_FIELD: 'The {server} refuses the field "{field}" ({status}). Take it out of the parameters, then try '
    "again.",
    Fault.NO_KEY: "The {server} wants an API key (401). Give it {key}.{keys}",
    Fault.WRONG_KEY: "The {server} refused the API key (401). Give the right one {key}.{keys}",
    Fault.IMAGE_GONE: "An image of this conversation is no longer in the store, so it cannot be sent again. Edit the "
    "message that had it, or start a new conversation.",
    Fault.NOT_AS_JSON: "A parameter of this conversation has a value that cannot be sent as JSON. Correct it, then try "
    "again.",
    Fault.PAID_FOR: "{url} is on the internet: nothing is warmed up there, because each prefill would be paid for.",
    Fault.NO_SUCH_MODEL: "The {server} has no model {model}. It has: {models}. Choose one {model_setting}.",
    Fault.ENDLESS: "The {server} does not end an answer where it is asked to (max_tokens), so the examination was "
    "ended.",
    Fault.PROGRAM: "{title} at {url} {told}",
    Fault.NOTHING_SAID: "The {server} ended the answer before its first word and gave no reason. Most likely the "
    "conversation is longer than its window (--n_ctx, 2,048 tokens unless set); its log says "
    "more.",
    Fault.INTERRUPTED: "The {server} broke the answer off, as it does when another request comes. What came is kept; "
    "try again. Started with --interrupt_requests false, it lets the other one wait.",
    Fault.NOT_LOADED: 'The model "{model}" is not loaded at {url}. Send a question to load it.',
    Fault.NOT_FOLLOWED: 'The cache of "{model}" at {url} cannot be followed: only that of a llama-server can.',
    Fault.STARTED_WITHOUT_MODEL: "The {server} was started without a model. Choose one of its list {model_setting}, or "
    "start it with --model.",
    Fault.NOT_BEGUN: "The {server} could not begin the answer: {words} Check the model's name, and the server's log.",
    Fault.MODEL_MISSING: "Ollama at {url} does not have the model {model} (404). Get it with `{command}`, or choose "
    "another model.",
    Fault.NO_MODEL_YET: "Ollama at {url} has no model yet. Get one with `ollama pull`, for example `ollama pull "
    "qwen3`, then choose it.",
    Fault.NOT_SIGNED_IN: "This model does not run at {url} but at ollama.com, and this Ollama is not signed in there. "
    "Run `ollama signin`, or choose a model that runs here.",
    Fault.URL_WITH_USER: 'The server URL for "{url}" holds a user or password. Leave them out; a key has a place of '
    "its own {key_variable}.",
    Fault.URL_UNREADABLE: 'The server URL "{url}" cannot be read. Write it like http://127.0.0.1:9931.',
    Fault.URL_PORT: 'The server URL "{url}" has port 0. Give the port the server listens on.',
    Fault.URL_SCHEME: 'The server URL "{url}" must begin with http:// or https://, like http://127.0.0.1:9931.',
    Fault.URL_HOST: 'The server URL "{url}" names no host. Write it like http://127.0.0.1:9931.',
    Fault.URL_QUERY: 'The server URL "{url}" holds a query (?) or fragment (#). Leave it out.',
    Fault.URL_PATH: 'The server URL "{url}" has characters in its path that a URL cannot hold.',
    Fault.URL_ZONE: 'The server URL "{url}" has a zone or an escape in its host. Use a plain name or address.',
    Fault.URL_NAME: 'The server URL "{url}" has a host name that is not valid.',
    Fault.URL_ADDRESS: 'The server URL "{url}" cannot be used: {clause}.',
    Fault.SERVER_ADDRESS: "The server {url} cannot be used: {clause}.",
    Fault.METADATA_ADDRESS: "{host} is the metadata service of a cloud machine, not a model server",
    Fault.NOWHERE_ADDRESS: "{host} is not an address that a server can be reached at{hint}",
    Fault.SHORT_ADDRESS: '"{host}" is not a complete IPv4 address; write it as 127.0.0.1',
    Fault.UNKNOWN_NAME: 'No address is known for "{host}" (from {url}). Check the name and the network.',
    Fault.NAME_LEADS_NOWHERE: 'The name "{host}" (from {url}) leads to something that is not an address. Check the '
    "name and the network.",
    Fault.PLAIN_KEY: "The API key would go to {url} unencrypted, readable on the way. Use https, or allow it by the "
    "setting allow_plain_http_key of this server.",
    Fault.BAD_KEY: "The API key holds spaces or characters that a key cannot have. Check the variable that holds it "
    "{key_variable}.",
    Fault.BAD_PROXY: "The proxy's URL must be like http://proxy.example:3128.",
    Fault.TEXT_TOO_LONG: "Even texts of {longest} characters are too long for the model at {url}. Give it a larger "
    f"batch (llama-server: -ub), or choose another {_SETTING}.",
    Fault.PLAIN_VECTOR_KEY: "The API key would go to {url} unencrypted, readable on the way. Use https {address}.",
    Fault.NO_SEPARATE_MODEL: "The {server} needs an embedding model of its own beside the chat's. Name it "
    f"{_SETTING}.",
    Fault.SAME_SERVER: "Vectors are not asked for at {url}: a conversation uses that server, and they would empty its "
    "cache. Start another one for them {address}.",
    Fault.OTHER_VECTORS: "The {server} now gives vectors of {length} numbers, before that of {before}: it has another "
    "model. Start kvchat again.",
    Fault.NO_VECTORS: "The {server} gives no vectors ({status}). Start it with an embedding model (llama-server: "
    "--embeddings), or choose another {address}.",
    Fault.VECTORS_LOADING: "The engine for vectors is still loading {file}.",
    Fault.VECTORS_ENDED: f"{{sentence}} It made vectors with {{file}} {_SETTING}.",
    Fault.VECTORS_NOT_STARTED: f"{{sentence}} {_SETTING}",
    Fault.ENDING: "kvchat is ending: no vectors are made any more.",
}

_REFUSALS: dict[Fault, tuple[str, str]] = {
    Fault.STREAM_ERROR: ("stopped the answer with an error{said}", _LOG),
    Fault.NO_ACCESS: (f"refuses access{_STATUS}", "Check what the API key may use, or give another {key}."),
    Fault.NO_CREDIT: (
        f"has no credit left for this account{_STATUS}",
        "Add credit there, or choose another server {address}.",
    ),
    Fault.TOO_MANY: (f"takes no more requests now{_STATUS}", "Try again {when}."),
    Fault.NO_MODEL: (f"does not have the model{_STATUS}", "Load it there, or choose another {model_setting}."),
    Fault.NO_PATH: (f"does not know this path of its API{_STATUS}", "Check the address {address}."),
    Fault.TOO_LARGE: (
        f"finds the request too large{_STATUS}",
        "Start a new conversation, or raise the limit of the proxy before it (nginx: client_max_body_size).",
    ),
    Fault.UNAVAILABLE: (f"is not available now{_STATUS}", "Try again later."),
    Fault.BEHIND_PROXY: (
        f"is a proxy that got no answer from the model server behind it{_STATUS}",
        "Start or restart that one, then try again.",
    ),
    Fault.FAILED: (f"failed{_STATUS}", _LOG),
    Fault.REFUSED: (f"refused the request{_STATUS}", "Check {parameters}the server's log."),
}
"""What "The server at ..." does, with the server's own words, and what to do then."""


def fault_sentence(fault: Fault, arguments: Mapping[str, Value]) -> str:
    """What went wrong, as one sentence or two. `use="embeddings"` among the arguments: of a server for vectors."""
    chat = _IN_COMMAND if on_command_line.get() else _IN_APP
    words = {"keys": "", **(_EMBEDDINGS if arguments.get("use") else chat), **arguments}
    words["said"] = f": {words['said']}" if words.get("said") else ""
    if words.get("url") == BUILT_IN:
        words |= {"server": BUILT_IN, "url": f"the {BUILT_IN}"}
    words.setdefault("server", f"server at {words.get('url')}")
    if refusal := _REFUSALS.get(fault):
        if fault is Fault.TOO_MANY:
            words["when"] = _when(arguments.get("seconds"))
        return f"{stopped(f'The {{server}} {refusal[0]}'.format_map(words))} {refusal[1].format_map(words)}"
    if (special := _SPECIAL.get(fault)) is not None:
        return special(words)
    if fault is Fault.UNFINISHED:
        reason = words.get("reason")
        words["because"] = f' ("{reason}")' if reason else " without a reason (finish_reason)"
    if why := words.get("why"):
        words["hint"] = "; use 127.0.0.1 for this machine" if words.get("unspecified") else ""
        words["clause"] = _SENTENCES[Fault(str(why))].format_map(words)
    return _SENTENCES[fault].format_map(words)


def room_sentence(room: str) -> str:
    """What helps against a full window; `room`: how that is made larger."""
    return f"Start a new conversation, delete a turn, or {room}."


def stopped(sentence: str) -> str:
    """A sentence with its full stop."""
    return sentence if sentence.endswith((".", "!", "?", "…")) else sentence + "."


def _when(seconds: Value) -> str:
    if not isinstance(seconds, int) or not seconds:
        return "later" if seconds is None else "now"
    return f"in {seconds} s" if seconds < 60 else f"in {duration(seconds)}"


def _room(words: Mapping[str, Value]) -> str:
    return room_sentence(str(words.get("room") or ROOM))


def _no_profile(words: Mapping[str, Value]) -> str:
    way = here("Choose a server (/model)", "Name a server (--base-url)")
    return (
        f"There is no profile {words['name']} in the settings, which this conversation uses. {way}, or write the "
        "profile."
    )


def _no_server(words: Mapping[str, Value]) -> str:
    asked = f" (asked: {words['asked']})" if words.get("asked") else ""
    if words.get("unusable"):
        asked = f" that can be used now ({words['unusable']})"
    engine = (
        here("a model file", "name a model file (--model FILE.gguf)")
        if words["embedded"]
        else ("install the built-in engine: pip install 'kvchat[embedded]'")
    )
    choose = here("choose one, or" if words["embedded"] else "choose one (/model), or", "name one (--base-url), or")
    end = here(" (/model)", "") if words["embedded"] else ""
    return f"No model server answers on this machine{asked}. Start one, {choose} {engine}{end}."


def _not_connected(words: Mapping[str, Value]) -> str:
    if words["server"] == BUILT_IN:
        return f"The {BUILT_IN} does not answer ({words['reason']}). {here('Choose it again (/model)', 'Try again')}."
    return f"No server answers at {words['url']} ({words['reason']}). Start it, or choose another {words['address']}."


def _roles(words: Mapping[str, Value]) -> str:
    what = f"The chat template of the model at {words['url']} does not take these messages: {words['words']}"
    return f"{stopped(what)} Start a new conversation, or give the server another chat template."


def _too_long(words: Mapping[str, Value]) -> str:
    least = "at least " if words["least"] else ""
    return (
        f"This is too long for {words['url']}: the prompt has {least}{words['prompt']:,} tokens, but the server's "
        f"window holds {words['window']:,}. {_room(words)}"
    )


def _window_full(words: Mapping[str, Value]) -> str:
    full = stopped(f"The window of the {words['server']} is full: {words['words']}")
    return f"{full} {room_sentence('lower max_tokens') if words['with_figures'] else _room(words)}"


def _own_window_full(words: Mapping[str, Value]) -> str:
    prompt, window = words["prompt"], words["window"]
    if prompt and window:
        return f"The conversation has {prompt:,} tokens, but its window holds {window:,}. {_room(words)}"
    return f"The conversation is longer than its window. {_room(words)}"


_SPECIAL: dict[Fault, Callable[[Mapping[str, Value]], str]] = {
    Fault.NO_PROFILE: _no_profile,
    Fault.NO_SERVER: _no_server,
    Fault.NOT_CONNECTED: _not_connected,
    Fault.ROLES: _roles,
    Fault.TOO_LONG: _too_long,
    Fault.WINDOW_FULL: _window_full,
    Fault.OWN_WINDOW_FULL: _own_window_full,
}
