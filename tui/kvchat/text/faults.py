"""What went wrong with a server, in words: what happened, at which server, and what to do, in the app as on the command
line.

The value of a kind is its sentence, which `fault_sentence` fills. What a server said is an argument that was made one
clean, short line before.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import UNIQUE, StrEnum, verify

from kvchat.text.format import duration, filled, on_command_line, stopped

Value = str | int | float | bool | None
_STATUS = " ({status}){said}"
_LOG = "Try again; if it stays so, look at the server's log."
_SETTING = "(embeddings.model in the settings)"


@verify(UNIQUE)
class Fault(StrEnum):
    """`said` are the server's own words, with the full stop. Of other kinds of arguments: `text.format.filled`."""

    TOLD = "{sentence}"
    # no answer
    NOT_CONNECTED = (
        "<own:The {server} does not answer ({reason}). <cli:Try again|Choose it again (/model)>.|No server answers at "
        "{url} ({reason}). Start it, or choose another {address}.>"
    )
    NO_ANSWER = (
        "The {server} accepted the connection but did not answer within {seconds:g} s. It may hang; look at its log "
        "or restart it."
    )
    NO_PROFILE = (
        "There is no profile {name} in the settings, which this conversation uses. <cli:Name a server "
        "(--base-url)|Choose a server (/model)>, or write the profile."
    )
    NO_SERVER = (
        "No model server answers on this machine<unusable: that can be used now ({unusable})|<asked: (asked: "
        "{asked})>>. Start one, <cli:name one (--base-url)|choose one<embedded:| (/model)>>, or <embedded:<cli:name a "
        "model file (--model FILE.gguf)|a model file (/model)>|install the built-in engine: pip install "
        "'kvchat[embedded]'>."
    )
    BAD_CERTIFICATE = (
        "The certificate of {url} cannot be trusted ({reason}). If the server has its own certificate authority, name "
        "its file in the setting server.ca_file."
    )
    CERTIFICATE_FILE = 'The certificate file "{file}" cannot be read ({reason}). Correct the setting server.ca_file.'
    LOADING = "The {server} is still loading its model. Wait until that is done, then try again."
    CUT = (
        "The connection to {url} broke before the answer was complete. What came is kept; try again for a whole answer."
    )
    UNFINISHED = (
        'The {server} ended the answer<reason: ("{reason}")| without a reason (finish_reason)>: it may not be whole. '
        "What came is kept; try again for a whole answer."
    )
    NO_TLS = "The {server} does not encrypt. Write its address with http:// {address}."
    ONLY_TLS = "The {server} answers encrypted connections only. Write its address with https:// {address}."
    CUT_BEFORE = "The {server} closed the connection before it answered. Look at its log, then try again."
    NOT_SENT = "The {server} stopped accepting the request while it was sent. Try again."
    NOT_IN_TIME = "The {server} did not answer {path} in time."
    DEAD = "The {server} has stopped answering: three health checks in a row failed. Restart it, then try again."
    # an answer that is none
    PROTOCOL = "The {server} sent {what}, so the answer cannot be read. Try again; if it stays so, update the server."
    NOT_JSON = (
        "The {server} answered with something that is not a chat answer. Check that this is the address of a model "
        "server {address}."
    )
    REDIRECT = (
        "The {server} points to another address: {target}. kvchat follows no redirect; if you trust that address, "
        "choose it as the server {address}."
    )
    ENCODED = (
        'The {server} sent a compressed answer ("{encoding}") that was not asked for. Turn compression off in the '
        "proxy before it."
    )
    UNKNOWN_CODING = (
        'The {server} sent an answer compressed in a way that is not read here ("{encoding}"). Try another address of '
        "the same text."
    )
    UNEXPECTED = "The request to {url} failed in an unexpected way ({error}). Try again."
    UNFORESEEN = "kvchat failed while it read the answer ({error}). The text is kept."
    STREAM_ERROR = f"The {{server}} stopped the answer with an error{{said}} {_LOG}"
    # a refusal
    UNKNOWN_FIELD = (
        'The {server} refuses the field "{field}" ({status}). Take it out of the parameters, then try again.'
    )
    NO_KEY = "The {server} wants an API key (401). Give it {key}.{keys}"
    WRONG_KEY = "The {server} refused the API key (401). Give the right one {key}.{keys}"
    BASIC_AUTH = (
        "The {server} wants a user name and a password (401, Basic auth). Set server.headers.Authorization to "
        '"Basic " and the base64 of NAME:PASSWORD in the settings.'
    )
    NO_ACCESS = f"The {{server}} refuses access{_STATUS} Check what the API key may use, or give another {{key}}."
    NO_CREDIT = (
        f"The {{server}} has no credit left for this account{_STATUS} Add credit there, or choose another server "
        "{address}."
    )
    TOO_MANY = f"The {{server}} takes no more requests now{_STATUS} Try again {{when}}."
    NO_MODEL = f"The {{server}} does not have the model{_STATUS} Load it there, or choose another {{model_setting}}."
    NO_PATH = f"The {{server}} does not know this path of its API{_STATUS} Check the address {{address}}."
    TOO_LARGE = (
        f"The {{server}} finds the request too large{_STATUS} Start a new conversation, or raise the limit of the "
        "proxy before it (nginx: client_max_body_size)."
    )
    UNAVAILABLE = f"The {{server}} is not available now{_STATUS} Try again {{when}}."
    BEHIND_PROXY = (
        f"The {{server}} is a proxy that got no answer from the model server behind it{_STATUS} Start or restart that "
        "one, then try again."
    )
    FAILED = f"The {{server}} failed{_STATUS} {_LOG}"
    REFUSED = f"The {{server}} refused the request{_STATUS} Check {{parameters}}the server's log."
    ROLES = (
        "The chat template of the model at {url} does not take these messages: {words:stop} Start a new conversation, "
        "or give the server another chat template."
    )
    TOO_LONG = (
        "This is too long for {url}: the prompt has <least:at least >{prompt:,} tokens, but the server's window holds "
        "{window:,}. {remedy}"
    )
    WINDOW_FULL = "The window of the {server} is full: {words:stop} {remedy}"
    OWN_WINDOW_FULL = (
        "The conversation <sized:has {prompt:,} tokens, but its window holds {window:,}|is longer than its window>. "
        "{remedy}"
    )
    NOT_AS_JSON = (
        "A parameter of this conversation has a value that cannot be sent as JSON. Correct it, then try again."
    )
    IMAGE_GONE = (
        "An image of this conversation is no longer in the store, so it cannot be sent again. Edit the message that "
        "had it, or start a new conversation."
    )
    PAID_FOR = "{url} is on the internet: nothing is warmed up there, because each prefill would be paid for."
    NO_SUCH_MODEL = "The {server} has no model {model}. It has: {models}. Choose one {model_setting}."
    ENDLESS = "The {server} does not end an answer where it is asked to (max_tokens), so the examination was ended."
    # of a kind of server
    PROGRAM = "{title} at {url} {told}"
    NOTHING_SAID = (
        "The {server} ended the answer before its first word and gave no reason. Most likely the conversation is "
        "longer than its window (--n_ctx, 2,048 tokens unless set); its log says more."
    )
    INTERRUPTED = (
        "The {server} broke the answer off, as it does when another request comes. What came is kept; try again. "
        "Started with --interrupt_requests false, it lets the other one wait."
    )
    NOT_LOADED = 'The model "{model}" is not loaded at {url}. Send a question to load it.'
    NOT_FOLLOWED = 'The cache of "{model}" at {url} cannot be followed: only that of a llama-server can.'
    STARTED_WITHOUT_MODEL = (
        "The {server} was started without a model. Choose one of its list {model_setting}, or start it with --model."
    )
    NOT_BEGUN = "The {server} could not begin the answer: {words} Check the model's name, and the server's log."
    MODEL_MISSING = (
        "Ollama at {url} does not have the model {model} (404). Get it with `{command}`, or choose another model."
    )
    NO_MODEL_YET = (
        "Ollama at {url} has no model yet. Get one with `ollama pull`, for example `ollama pull qwen3`, then choose it."
    )
    NOT_SIGNED_IN = (
        "This model does not run at {url} but at ollama.com, and this Ollama is not signed in there. Run `ollama "
        "signin`, or choose a model that runs here."
    )
    # an address or a key
    URL_WITH_USER = (
        'The server URL for "{url}" holds a user or password. Leave them out; a key has a place of its own '
        "{key_variable}."
    )
    URL_UNREADABLE = 'The server URL "{url}" cannot be read. Write it like http://127.0.0.1:9931.'
    URL_PORT = 'The server URL "{url}" has port 0. Give the port the server listens on.'
    URL_SCHEME = 'The server URL "{url}" must begin with http:// or https://, like http://127.0.0.1:9931.'
    URL_HOST = 'The server URL "{url}" names no host. Write it like http://127.0.0.1:9931.'
    URL_QUERY = 'The server URL "{url}" holds a query (?) or fragment (#). Leave it out.'
    URL_PATH = 'The server URL "{url}" has characters in its path that a URL cannot hold.'
    URL_ZONE = 'The server URL "{url}" has a zone or an escape in its host. Use a plain name or address.'
    URL_NAME = 'The server URL "{url}" has a host name that is not valid.'
    URL_ADDRESS = 'The server URL "{url}" cannot be used: {clause}.'
    SERVER_ADDRESS = "The server {url} cannot be used: {clause}."
    METADATA_ADDRESS = "{host} is the metadata service of a cloud machine, not a model server"
    NOWHERE_ADDRESS = (
        "{host} is not an address that a server can be reached at<unspecified:; use 127.0.0.1 for this machine>"
    )
    SHORT_ADDRESS = '"{host}" is not a complete IPv4 address; write it as 127.0.0.1'
    UNKNOWN_NAME = 'No address is known for "{host}" (from {url}). Check the name and the network.'
    NAME_LEADS_NOWHERE = (
        'The name "{host}" (from {url}) leads to something that is not an address. Check the name and the network.'
    )
    PLAIN_KEY = (
        "The API key would go to {url} unencrypted, readable on the way. Use https, or allow it by the setting "
        "allow_plain_http_key of this server."
    )
    BAD_KEY = (
        "The API key holds spaces or characters that a key cannot have. Check the variable that holds it "
        "{key_variable}."
    )
    BAD_PROXY = "The proxy's URL must be like http://proxy.example:3128."
    # of vectors
    TEXT_TOO_LONG = (
        f"Even texts of {{longest}} characters are too long for the model at {{url}}. Give it a larger batch "
        f"(llama-server: -ub), or choose another {_SETTING}."
    )
    PLAIN_VECTOR_KEY = "The API key would go to {url} unencrypted, readable on the way. Use https {address}."
    NO_SEPARATE_MODEL = (
        f"The {{server}} needs an embedding model of its own in addition to the chat's. Name it {_SETTING}."
    )
    SAME_SERVER = (
        "Vectors are not asked for at {url}: a conversation uses that server, and they would empty its cache. Start "
        "another one for them {address}."
    )
    VECTORS_LEAVE = (
        "The model {model} of {url} runs at {host}, and you have not agreed to send to it. Nothing was sent; send a "
        f"message there once to be asked, or name another model {_SETTING}."
    )
    OTHER_VECTORS = (
        "The {server} now gives vectors of {length} numbers, before that of {before}: it has another model. Start "
        "kvchat again."
    )
    NO_VECTORS = (
        "The {server} gives no vectors ({status}). Start it with an embedding model (llama-server: --embeddings), or "
        "choose another {address}."
    )
    VECTORS_LOADING = "The engine for vectors is still loading {file}."
    VECTORS_ENDED = f"{{sentence}} It made vectors with {{file}} {_SETTING}."
    VECTORS_NOT_STARTED = f"{{sentence}} {_SETTING}"
    ENDING = "kvchat is ending: no vectors are made any more."


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
    DAMAGED_CODING = "an answer that is not whole {coding}, as it says"
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
"""Stands for the URL of kvchat's own server, whose address says nothing to the user."""
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


def fault_sentence(fault: Fault, arguments: Mapping[str, Value]) -> str:
    """What went wrong, as one sentence or two. `use="embeddings"` among the arguments: of a server for vectors."""
    chat = _IN_COMMAND if on_command_line.get() else _IN_APP
    words = {"keys": "", **(_EMBEDDINGS if arguments.get("use") else chat), **arguments}
    words["said"] = stopped(f": {said}" if (said := words.get("said")) else "")
    words["own"] = words.get("url") == BUILT_IN
    if words["own"]:
        words |= {"server": BUILT_IN, "url": f"the {BUILT_IN}"}
    words.setdefault("server", f"server at {words.get('url')}")
    words["when"] = _when(arguments.get("seconds"))
    words["sized"] = bool(words.get("prompt") and words.get("window"))
    words["remedy"] = room_sentence("lower max_tokens" if words.get("with_figures") else words.get("room"))
    if why := words.get("why"):
        words["clause"] = filled(Fault[str(why).upper()], words)
    return filled(fault, words)


def room_sentence(room: Value) -> str:
    """What helps against a full window; `room`: how that is made larger, where the kind of server has a way of its
    own."""
    return f"Start a new conversation, delete a turn, or {room or ROOM}."


def _when(seconds: Value) -> str:
    if not isinstance(seconds, int) or not seconds:
        return "later" if seconds is None else "now"
    return f"in {seconds} s" if seconds < 60 else f"in {duration(seconds)}"
