"""The kinds of servers, one table: each row has name, ports, fingerprint, flags, fields of requests and words.

A kind is known by a server's answers, never by its port; ports only say where to look. What no row can say is code in
`dialects`, imported when a server of the kind is spoken to.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from kvchat.cache import Flags, RemedyChange, RemedyWay
from kvchat.text.servers import CACHED_TOKENS

LLAMACPP = "llama.cpp"
"""What the built-in engine is."""
OPENAI = "openai"
CLOUD = "cloud"
CHAT_PATH = "/v1/chat/completions"
MODELS_PATH = "/v1/models"
PROPS_PATH = "/props"
SERVICE_PATH = "/.well-known/serviceinfo"
LOCALAI_PATH = "/.well-known/localai.json"
NOTHING: Mapping[str, str] = MappingProxyType({})


class Figures(StrEnum):
    """When and how well a server tells how many tokens came from its cache."""

    BEFORE = "before the first token"
    """Exact, while the prompt is read."""
    AFTER = "after the answer"
    """Exact, with the usage."""
    DERIVED = "derived"
    """Computed from other exact figures of the server."""
    ESTIMATED = "estimated"
    """From a time and a speed that was learnt."""
    NONE = "not reported"


class Continuing(StrEnum):
    """How far a server goes on with a reply that a request ends with."""

    NOT = "not"
    """It answers to it, or refuses it."""
    TEXT = "text"
    """Where that is text alone."""
    THOUGHTS = "thoughts"
    """Where it has reasoning too, and inside of that."""


class Sign(Struct, frozen=True):
    """What a kind is known by in the answer to a GET of `path`: all that is given here."""

    path: str
    status: int = 200
    """0: any."""
    server: str = ""
    """How its `Server` header begins, in lower case."""
    text: str = ""
    """The body, without quotes and space around it."""
    keys: frozenset[str] = frozenset()
    """Of the JSON object."""
    holds: str = ""
    """A key with a list or an object."""
    lacks: str = ""
    """A key that the JSON object does not have."""
    at: tuple[str, ...] = ()
    """Keys, one inside the other, to a text of the JSON object ..."""
    begins: str = ""
    """... and how that begins, in lower case."""


class At(Struct, frozen=True):
    """Where a fact is in a server's answers."""

    path: str
    keys: tuple[str, ...]
    """One inside the other."""


class KnownFailure(Struct, frozen=True):
    """What to say when a program says something known."""

    words: str
    """A part of what it says, in lower case."""
    shown: str
    """What the user reads instead, after "<program> at <address>"."""
    trouble: Literal["refused", "rate_limited", "server_error"] = "refused"


class Timings(Struct, frozen=True):
    """How a usage names what llama.cpp has in its timings."""

    prompt: str
    predicted: str
    ms: int = 1
    """Milliseconds of its unit of time."""
    rate: str = ""
    """Evaluated tokens in a second: times the time, that is how many were not cached."""


class ServerKind(Struct, frozen=True, eq=False):
    """What is known of a kind of server before one is asked."""

    name: str
    """As evidence, settings and JSON name it."""
    title: str
    """As the screen names it."""
    ports: tuple[int, ...] = ()
    """Where it usually listens, by itself first."""
    flags: Flags = Flags()
    """What can be changed about it, and by which flag or setting."""
    code: str = "dialects.program.ProgramBackend"
    """The class that speaks to it, inside of this package."""

    # how it is recognised
    probes: tuple[str, ...] = ()
    """The paths to GET that tell it from others."""
    signs: tuple[Sign, ...] = ()
    """Each is enough."""
    owner: str = ""
    """Who owns its models, where that tells it from others."""
    header: str = ""
    """How the name of a header begins that only it sends."""
    not_where: Sign | None = None
    """Where this is, it is none of this kind, and is not asked for more."""
    found_in_cloud: bool = False
    """Whether a server on the internet is asked whether it is of this kind."""
    describing_disturbs: bool = False
    """Whether asking for its models breaks off an answer that somebody else is given: only who goes on to talk does."""

    # where its facts are
    health_path: str = MODELS_PATH
    current: At | None = None
    """The name of the loaded model."""
    first_is_loaded: bool = False
    """Whether the first model of its list is the one that is loaded, whatever the list says."""
    no_model: str = ""
    """What it calls its model where none is loaded."""
    keeps_model: bool = False
    """Whether the model in use stays in use while it is listed."""
    window: tuple[At, ...] = ()
    """The smallest counts."""
    slots: At | None = None
    build: At | None = None
    sees: At | None = None
    about: At | None = None
    """Words on its models."""
    figures: Figures = Figures.AFTER
    unknown: tuple[str, ...] = ()
    """What it does not report, or not always; what it did report is left out."""

    # what its requests have
    session_fields: tuple[str, ...] = ("session_id",)
    """The body fields by which this kind of server, or a router for it, knows a conversation."""
    takes_extras: bool = False
    """Whether fields for live figures may be sent."""
    extras: Mapping[str, object] = NOTHING
    """Those fields."""
    counts_on: bool = False
    """Whether it can send the usage with every part of an answer: a stopped one has its figures too then."""
    template_field: str = "chat_template_kwargs"
    """The field for options of the chat template; empty: it takes none."""
    option_fields: Mapping[str, str] = NOTHING
    """Its own fields for such options."""
    continue_fields: Mapping[str, object] = NOTHING
    """The fields by which it goes on with a reply that the request ends with."""
    headers: Mapping[str, str] = NOTHING
    repeat_penalty: str = "repeat_penalty"
    """Its name for that parameter."""

    # what its answers have
    timings: Timings | None = None
    ignores_model: bool = False
    """Whether it answers with the model that is loaded, whatever model was asked for."""

    # what is said of it
    room: str = ""
    """How its window is made larger, behind "Start a new conversation, delete a turn, or"."""
    keys: str = ""
    """Where its API keys are: a sentence."""
    remedies: tuple[KnownFailure, ...] = ()
    unloaded: str = ""
    """What the user reads where an answer ends before it began and no model is loaded, after "<program> at
    <address>"."""

    # how it caches and answers
    block: int = 1
    """Tokens of a block of its prompt cache."""
    keeps_one: bool = False
    """Whether it holds what was asked last, and nothing else."""
    keeps_many: bool = False
    """Whether it keeps several conversations though it does not say how many slots it has."""
    answers_many: bool = False
    """Whether it answers many requests at a time, none of them at the cost of another."""
    small_window: bool = False
    """Whether a model has a window of 4,096 tokens there by default."""
    embeds_too: bool = False
    """Whether an embedding model is loaded next to the chat's, without unloading it."""
    sole: Sign | None = None
    """What it alone has, and says together with the name of its one model; None: nothing."""
    shows_template: bool = False
    """Whether `/props` has the text of the chat template."""
    takes_any_model: bool = False
    """Whether another model answers, silently, where the one that is asked for is not there."""
    is_tracked: bool = False
    """Whether its cache can be followed: of the servers that are found, such a one is taken first."""
    tag: str = ""
    """What may be left out at the end of a model's name."""
    cloud: str = ""
    """Where a model runs whose name says that it does not run here: `gpt-oss:120b-cloud`; empty: none does."""
    passes_on: bool = False
    """Whether a model that it does not list may be one that it fetches from a service on the internet."""
    continuing: Continuing = Continuing.NOT
    """Which cut replies it can continue."""
    answers_in_slots: bool = False
    """Whether one request can ask for several answers (`n`), one for each slot, from one prefill."""
    takes_token_ids: bool = False
    """Whether a prompt can go as token ids, and those of the answer come back."""


_YAML = "the model's YAML file of LocalAI"
_START = "Start one in Jan (Settings > Model Providers), then try again."

_ROWS = (
    ServerKind(
        LLAMACPP,
        "llama.cpp",
        (9931, 8080),
        Flags(
            "llama-server",
            RemedyChange("--ctx-size {whole}"),
            asked_to_cache=True,
            idle="Let the server sleep later (--sleep-idle-seconds with a larger number), or never (-1).",
            host_cache="--cache-ram 8192",
            slots="--parallel {slots}",
            more_models="--models-max {models}",
            cache_room="--cache-ram {mib}",
            no_shift="--no-context-shift",
            whole_window="--swa-full",
            checkpoints="--ctx-checkpoints {count}",
            slot_folder="--slot-save-path FOLDER",
            pinning="--no-kv-unified, or with --no-cache-idle-slots",
            template="--chat-template-file FILE",
            fix_date='--chat-template-kwargs \'{"date_string":"01 Jan 2026"}\'',
            keep_reasoning="--reasoning-preserve",
        ),
        code="dialects.llamacpp.LlamaCppBackend",
        probes=(PROPS_PATH, MODELS_PATH),
        signs=(Sign(PROPS_PATH, 0, "llama.cpp"),),
        found_in_cloud=True,
        sole=Sign(PROPS_PATH, 200, "llama.cpp", keys=frozenset({"model_alias", "build_info", "media_marker"})),
        health_path="/health",
        shows_template=True,
        takes_any_model=True,
        is_tracked=True,
        continuing=Continuing.THOUGHTS,
        answers_in_slots=True,
        takes_token_ids=True,
    ),
    ServerKind(
        "llama-swap",
        "llama-swap",
        (8080,),
        Flags(
            "the model's llama-server in llama-swap's configuration",
            RemedyChange("--ctx-size {whole}"),
            RemedyChange(
                "--cache-ram 8192, and keep models that are used in turn loaded together (groups, swap: false)"
            ),
            idle="Raise the model's ttl in llama-swap's configuration.",
        ),
        code="dialects.llamaswap.LlamaSwapBackend",
        probes=(MODELS_PATH, "/running"),
        signs=(Sign("/running", holds="running"),),
        owner="llama-swap",
        not_where=Sign(MODELS_PATH, 0, "llama.cpp"),  # it lists the models itself
        health_path="/health",
        keeps_many=True,
        is_tracked=True,
    ),
    ServerKind(
        "llamafile",
        "llamafile",
        (8080,),
        Flags(
            window=RemedyChange("--ctx-size {whole}"),
            more_room=RemedyChange("--parallel 2"),
            caching=RemedyChange("older versions cache only when asked with cache_prompt", way=RemedyWay.UPDATE),
        ),
        code="dialects.rare.LlamafileBackend",
        probes=(PROPS_PATH, MODELS_PATH),
        signs=(
            Sign(PROPS_PATH, 200, "llama.cpp", keys=frozenset({"user_name", "assistant_name"}), lacks="build_info"),
        ),
        owner="llamafile",
        window=(At(PROPS_PATH, ("default_generation_settings", "n_ctx")),),
        slots=At(PROPS_PATH, ("total_slots",)),
        figures=Figures.NONE,
        unknown=("token counts", CACHED_TOKENS, "slots", "context size", "prompt progress"),
        takes_extras=True,
        extras={"cache_prompt": True},
        template_field="",
        shows_template=True,
    ),
    ServerKind(
        "ollama",
        "Ollama",
        (11434,),
        Flags(
            window=RemedyChange("OLLAMA_CONTEXT_LENGTH={size}"),
            more_room=RemedyChange("OLLAMA_NUM_PARALLEL=2"),
            idle="Keep the model loaded: start Ollama with OLLAMA_KEEP_ALIVE=-1.",
            keep_alive="-1",
            report="Update Ollama: newer versions report the cached tokens.",
            asked_window="num_ctx",
            without_date="Make the model anew from a Modelfile with a TEMPLATE that has no currentDate "
            "(ollama create).",
        ),
        code="dialects.ollama.backend.OllamaBackend",
        probes=("/", "/api/version", LOCALAI_PATH),
        health_path="/api/version",
        session_fields=(),
        small_window=True,
        embeds_too=True,
        tag=":latest",
        cloud="https://ollama.com:443",
        continuing=Continuing.TEXT,
    ),
    ServerKind(
        "lmstudio",
        "LM Studio",
        (1234,),
        Flags(
            window=RemedyChange(
                "Context Length to {size}",
                "the model's load settings in LM Studio (lms load MODEL --context-length {size})",
                RemedyWay.SET,
            ),
            more_room=RemedyChange(
                "Max Concurrent Predictions to 2", "the model's load settings in LM Studio", RemedyWay.RAISE
            ),
            idle="Raise the model's idle TTL in LM Studio, or switch its auto-unload off.",
            keep_alive="24h",
        ),
        code="dialects.lmstudio.LMStudioBackend",
        probes=("/api/v1/models", "/api/v0/models"),
        session_fields=(),
        template_field="",
        ignores_model=True,
        room="load the model with a larger context length in LM Studio",
        keys="LM Studio makes API tokens under Developer > Server Settings > Manage Tokens.",
        remedies=(
            KnownFailure(
                "no models loaded",
                "has no model loaded. Load one there (or: lms load), or turn on just-in-time "
                "loading under Developer > Server Settings.",
            ),
            KnownFailure(
                "failed to load model",
                "could not load the model. Look at its developer log; a smaller context length, "
                "or another model, may fit into memory.",
            ),
            KnownFailure(
                "unloaded",
                "unloaded the model. Try again: it is loaded again then, and everything is prefilled again.",
                "server_error",
            ),
        ),
        small_window=True,
        embeds_too=True,
    ),
    ServerKind(
        "vllm",
        "vLLM",
        (8000,),
        Flags(
            window=RemedyChange("--max-model-len {size}"),
            caching=RemedyChange("--enable-prefix-caching", "vLLM"),
            report="Start vLLM with --enable-prompt-tokens-details.",
            cache_room="--gpu-memory-utilization",
            template="--chat-template FILE",
            without_date="for gpt-oss set VLLM_SYSTEM_START_DATE=2026-01-01",
        ),
        code="dialects.vllm.VllmBackend",
        probes=(MODELS_PATH, "/version"),
        owner="vllm",
        found_in_cloud=True,
        health_path="/health",
        build=At("/version", ("version",)),
        unknown=("slots", "prompt progress"),
        takes_extras=True,
        counts_on=True,
        option_fields={"reasoning_effort": "reasoning_effort"},  # gpt-oss is rendered without a template
        continue_fields={"add_generation_prompt": False, "continue_final_message": True},
        block=16,
        keeps_many=True,
        answers_many=True,
        continuing=Continuing.TEXT,
    ),
    ServerKind(
        "llama-cpp-python",
        "llama-cpp-python",
        (8000,),
        Flags(
            "the server of llama-cpp-python",
            RemedyChange("--n_ctx {size}"),
            RemedyChange("--cache true"),
            RemedyChange("--cache true", "the server of llama-cpp-python"),
        ),
        code="dialects.rare.LlamaCppPythonBackend",
        probes=("/extras/tokenize/count",),
        signs=(Sign("/extras/tokenize/count", 405),),
        describing_disturbs=True,
        health_path="/extras/tokenize/count",
        figures=Figures.NONE,
        unknown=("token counts", CACHED_TOKENS, "context size", "prompt progress"),
        takes_extras=True,
        template_field="",
        keeps_one=True,
    ),
    ServerKind(
        "sglang",
        "SGLang",
        (30000,),
        Flags(
            window=RemedyChange("--context-length {size}"),
            no_caching="Start SGLang without --disable-radix-cache.",
            report="Start SGLang with --enable-cache-report.",
            cache_room="--mem-fraction-static",
            template="--chat-template FILE",
        ),
        code="dialects.sglang.SglangBackend",
        probes=(MODELS_PATH, "/"),
        signs=(Sign("/", text="SGLang is running"),),
        owner="sglang",
        found_in_cloud=True,
        window=(At("/server_info", ("context_length",)),),
        build=At("/server_info", ("version",)),
        sees=At("/get_model_info", ("has_image_understanding",)),
        unknown=("slots", "prompt progress"),
        takes_extras=True,
        counts_on=True,  # a cold prompt says 0, which the last usage leaves out
        continue_fields={"continue_final_message": True},
        keeps_many=True,
        answers_many=True,
        continuing=Continuing.TEXT,
    ),
    ServerKind(
        "mlx-lm",
        "mlx-lm",
        (8080,),
        Flags("mlx_lm.server", more_room=RemedyChange("a larger --prompt-cache-size"), template="--chat-template"),
        code="dialects.mlxlm.MlxLmBackend",
        probes=("/health", PROPS_PATH, MODELS_PATH),
        health_path="/health",
        keeps_many=True,
    ),
    ServerKind(
        "koboldcpp",
        "KoboldCpp",
        (5001,),
        Flags(window=RemedyChange("--contextsize {size}"), more_room=RemedyChange("--smartcache")),
        probes=(SERVICE_PATH,),
        signs=(Sign(SERVICE_PATH, at=("software", "name"), begins="koboldcpp"),),
        owner="koboldcpp",
        health_path="/api/extra/version",
        first_is_loaded=True,
        no_model="inactive",
        window=(At("/api/extra/true_max_context_length", ("value",)),),
        build=At("/api/extra/version", ("version",)),
        sees=At("/api/extra/version", ("vision",)),
        figures=Figures.NONE,
        unknown=(CACHED_TOKENS, "slots"),
        session_fields=(),
        option_fields={"reasoning_effort": "reasoning_effort"},
        ignores_model=True,
        room="start KoboldCpp with a larger --contextsize",
        keys="KoboldCpp's key is what it was started with as --password.",
        remedies=(
            KnownFailure(
                "server is busy",
                "is busy with another request and takes one at a time. Try again when that is done, "
                "or start it with --multiuser.",
                "rate_limited",
            ),
            KnownFailure(
                "requests too quickly",
                "takes no more requests now. Try again later, or start it without --ratelimit.",
                "rate_limited",
            ),
            KnownFailure(
                "payload is too big",
                "finds the request too large. Start a new conversation, or start it with a larger --maxrequestsize.",
            ),
        ),
        shows_template=True,
    ),
    ServerKind(
        "tabbyapi",
        "TabbyAPI",
        (5000,),
        Flags(
            window=RemedyChange("max_seq_len: {size}", "TabbyAPI's config.yml", RemedyWay.SET),
            more_room=RemedyChange("cache_size", "TabbyAPI's config.yml", RemedyWay.RAISE),
        ),
        probes=(SERVICE_PATH,),
        signs=(Sign(SERVICE_PATH, at=("software", "name"), begins="tabbyapi"),),
        health_path="/health",
        current=At("/v1/model", ("id",)),
        window=(At("/v1/model", ("parameters", "max_seq_len")), At("/v1/model", ("parameters", "cache_size"))),
        slots=At("/v1/model", ("parameters", "max_batch_size")),
        sees=At("/v1/model", ("parameters", "use_vision")),
        figures=Figures.DERIVED,
        unknown=("version",),
        session_fields=(),
        template_field="template_vars",  # older versions know them only as that
        repeat_penalty="repetition_penalty",
        timings=Timings("prompt_time", "completion_time", 1000, "prompt_tokens_per_sec"),
        ignores_model=True,
        room="raise max_seq_len and cache_size in TabbyAPI's config.yml",
        keys="TabbyAPI keeps its keys in api_tokens.yml.",
        remedies=(
            KnownFailure(
                "an admin key isn't provided",
                "loads another model only for its admin key. Choose the loaded model, or "
                "give the admin key (in api_tokens.yml).",
            ),
            KnownFailure(
                "no models are currently loaded",
                "has no model loaded. Name one in its config.yml (model.model_name), or load it there.",
                "server_error",
            ),
            KnownFailure(
                "prompt template is not set",
                "has no chat template for this model. Set model.prompt_template in its config.yml.",
            ),
        ),
        keeps_many=True,
    ),
    ServerKind(
        "text-generation-webui",
        "text-generation-webui",
        (5000,),
        Flags(window=RemedyChange("--ctx-size {size}"), more_room=RemedyChange("--parallel 2")),
        probes=("/v1/internal/model/info",),
        signs=(Sign("/v1/internal/model/info", keys=frozenset({"model_name", "lora_names"})),),
        health_path="/v1/internal/health",
        current=At("/v1/internal/model/info", ("model_name",)),
        no_model="None",
        about=At("/v1/internal/model/info", ("loader",)),
        figures=Figures.NONE,
        unknown=(CACHED_TOKENS, "context size", "slots", "version"),
        session_fields=(),
        template_field="",
        option_fields={
            "enable_thinking": "enable_thinking",
            "reasoning_effort": "reasoning_effort",
            "preserve_reasoning": "preserve_thinking",
            "preserve_thinking": "preserve_thinking",
        },
        repeat_penalty="repetition_penalty",
        ignores_model=True,
        room="load the model with a larger ctx-size in text-generation-webui",
        keys="text-generation-webui's key is what it was started with as --api-key.",
        remedies=(
            KnownFailure(
                "invalid host header",
                "answers only to localhost and 127.0.0.1. Use one of these, or start it with --listen.",
            ),
        ),
        unloaded="has no model loaded. Load one in its Model tab, then try again.",
    ),
    ServerKind(
        "localai",
        "LocalAI",
        (8080,),
        Flags(
            window=RemedyChange("context_size: {size}", _YAML, RemedyWay.SET),
            more_room=RemedyChange("the option parallel:2", _YAML, RemedyWay.SET),
            caching=RemedyChange("prompt_cache_all: true", _YAML, RemedyWay.SET),
        ),
        code="dialects.rare.LocalAIBackend",
        probes=(LOCALAI_PATH,),
        signs=(Sign(LOCALAI_PATH, keys=frozenset({"version"}), holds="endpoints"),),
        health_path="/readyz",
        build=At(LOCALAI_PATH, ("version",)),
        figures=Figures.NONE,
        unknown=(CACHED_TOKENS, "slots", "context size", "loaded models"),
        session_fields=(),
        template_field="",
        headers={"Extra-Usage": "1"},
        timings=Timings("timing_prompt_processing", "timing_token_generation"),
        room="raise context_size in the model's YAML file of LocalAI",
        keys="LocalAI's keys are what it was started with as LOCALAI_API_KEY.",
        remedies=(
            KnownFailure(
                "is disabled and cannot be loaded",
                "has the model disabled. Enable it on its System page, or choose another.",
            ),
        ),
    ),
    ServerKind(
        "jan",
        "Jan",
        (1337,),
        code="dialects.rare.JanBackend",
        probes=("/openapi.json",),
        signs=(Sign("/openapi.json", at=("info", "title"), begins="jan "),),
        health_path="/",
        unknown=("context size", "slots", "version"),
        session_fields=(),
        room="raise Context Size in the model's settings in Jan",
        keys="Jan's key is set under Settings > Local API Server.",
        remedies=(
            KnownFailure(
                "invalid host header",
                "does not answer to this host name. Add it under Settings > Local API Server > "
                "Trusted Hosts, or use the address that is shown there.",
            ),
            KnownFailure("no models are available", f"has no model running. {_START}", "server_error"),
            KnownFailure("no running session found", f"does not run this model. {_START}"),
            KnownFailure("must contain a 'model' field", f"has no model running. {_START}"),
            KnownFailure(
                "proxy request to model failed",
                "gets no answer from its engine. Stop the model there and start it again.",
                "server_error",
            ),
        ),
        passes_on=True,
    ),
    ServerKind(
        "litellm",
        "LiteLLM",
        (4000,),
        Flags(
            affinity='router_settings: optional_pre_call_checks: ["session_affinity"]',
            affinity_header="X-LiteLLM-Session-Id",
            is_proxy=True,
        ),
        code="dialects.rare.LiteLLMBackend",
        probes=("/health/liveliness", MODELS_PATH),
        signs=(Sign("/health/liveliness", text="I'm alive!"),),
        header="x-litellm-",
        health_path="/health/liveliness",
        keeps_model=True,
        unknown=("context size", "slots", "which server answers"),
        session_fields=("litellm_session_id",),
        keeps_many=True,
    ),
    ServerKind(OPENAI, "OpenAI-compatible", (8001,), code="base.OneTokenWarmUp", probes=(MODELS_PATH,)),
    ServerKind(
        CLOUD,
        "cloud service",
        code="dialects.cloud.CloudBackend",
        probes=(MODELS_PATH,),
        found_in_cloud=True,
        keeps_model=True,
        unknown=("context size", "slots"),
        template_field="",
        keeps_many=True,
    ),
)
KINDS: Mapping[str, ServerKind] = MappingProxyType({kind.name: kind for kind in _ROWS})
"""Every kind by its name, as settings, JSON and what is stored have it; the best known first."""


RECOGNITION = (
    "llama-swap",
    "llamafile",
    LLAMACPP,  # the first two answer much as the third does
    "llama-cpp-python",  # known by one path, which is asked before anything that disturbs it
    "vllm",
    "sglang",
    "koboldcpp",
    "tabbyapi",
    "localai",  # they imitate Ollama, and answer /props
    "lmstudio",
    "ollama",
    "text-generation-webui",
    "litellm",
    "jan",
    "mlx-lm",  # known by what it does not answer
    CLOUD,
    OPENAI,
)
"""The order in which a server is recognised: whoever has a sign of its own comes before those whose sign others
imitate; the most common come early, because each kind that is not meant costs its questions."""


def kind_of(name: str) -> ServerKind:
    """What is known of a kind; of a name that is not in `KINDS`, a kind that is called so and no more."""
    return KINDS.get(name) or ServerKind(name, name)


@cache
def ports() -> tuple[int, ...]:
    """Every usual port, each once."""
    return tuple(dict.fromkeys(port for kind in KINDS.values() for port in kind.ports))


def usual_places() -> str:
    """Where servers are looked for, in words: each port with the kind it is best known for."""
    known: dict[int, str] = {}
    for kind in KINDS.values():
        for port in kind.ports if kind.name != OPENAI else ():
            known.setdefault(port, kind.title)
    places: dict[str, list[str]] = {}
    for port, title in known.items():
        places.setdefault(title, []).append(str(port))
    return ", ".join(f"{title} {' or '.join(ports)}" for title, ports in places.items())


def title_of(name: str) -> str:
    """A kind as the screen names it."""
    return kind_of(name).title
