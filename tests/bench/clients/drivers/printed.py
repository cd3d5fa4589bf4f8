"""Clients in print mode: started for each message."""

from __future__ import annotations

import json
import uuid

from drivers.base import Printed, newest

MODEL = "parrot"
WINDOW = 65_536


class Claude(Printed):
    """Claude Code, its own prompt and tools, over /v1/messages."""

    def prepare(self) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": self.setting.base_url,
            "ANTHROPIC_AUTH_TOKEN": "none",
            "ANTHROPIC_MODEL": MODEL,
            "ANTHROPIC_SMALL_FAST_MODEL": MODEL,
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def command(self, conversation: str, first: bool, message: str) -> list[str]:
        number = str(uuid.uuid5(uuid.NAMESPACE_DNS, conversation))
        return [self.program("claude"), "-p", "--session-id" if first else "--resume", number, message]


class Codex(Printed):
    """Codex, its own prompt and tools, over /v1/responses."""

    def prepare(self) -> dict[str, str]:
        self.setting.write(
            ".codex/config.toml",
            f'''model = "{MODEL}"
model_provider = "local"
check_for_update_on_startup = false
[model_providers.local]
name = "local"
base_url = "{self.setting.api}"
wire_api = "responses"
env_key = "LOCAL_KEY"
request_max_retries = 0
stream_max_retries = 0
''',
        )
        return {"LOCAL_KEY": "none", "CODEX_HOME": str(self.setting.home / ".codex")}

    def command(self, conversation: str, first: bool, message: str) -> list[str]:
        resumed = [] if first else ["resume", self.names[conversation]]
        return [self.program("codex"), "exec", "--json", "--skip-git-repo-check", *resumed, message]

    def name_in(self, output: str) -> str:
        return next(str(json.loads(line)["thread_id"]) for line in output.splitlines() if '"thread_id"' in line)


class Pi(Printed):
    """pi, its own prompt and tools; a folder of sessions for each conversation."""

    def prepare(self) -> dict[str, str]:
        model = {
            "id": MODEL,
            "name": MODEL,
            "reasoning": False,
            "input": ["text"],
            "contextWindow": WINDOW,
            "maxTokens": 2000,
            "cost": dict.fromkeys(("input", "output", "cacheRead", "cacheWrite"), 0),
        }
        provider = {
            "baseUrl": self.setting.api,
            "api": "openai-completions",
            "apiKey": "none",
            "models": [model],
        }
        self.setting.write(".pi/agent/models.json", json.dumps({"providers": {"local": provider}}))
        return {"PI_OFFLINE": "1"}

    def command(self, conversation: str, first: bool, message: str) -> list[str]:
        chosen = ["--offline", "--provider", "local", "--model", MODEL]
        sessions = ["--session-dir", str(self.setting.home / f"sessions-{conversation}")]
        return [self.program("pi"), "-p", *chosen, *sessions, *([] if first else ["-c"]), message]


class Opencode(Printed):
    """opencode, its own prompt and tools; the same model for its side requests."""

    def prepare(self) -> dict[str, str]:
        model = {"name": MODEL, "tool_call": True, "limit": {"context": WINDOW, "output": 2000}}
        settings = {
            "autoupdate": False,
            "share": "disabled",
            "model": f"local/{MODEL}",
            "small_model": f"local/{MODEL}",
            "provider": {
                "local": {
                    "npm": "@ai-sdk/openai-compatible",
                    "name": "local",
                    "options": {"baseURL": self.setting.api, "apiKey": "none"},
                    "models": {MODEL: model},
                }
            },
        }
        self.setting.write("workspace/opencode.json", json.dumps(settings))
        return dict.fromkeys(
            ("OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_LSP_DOWNLOAD"), "1"
        )

    def command(self, conversation: str, first: bool, message: str) -> list[str]:
        resumed = [] if first else ["-s", self.names[conversation]]
        return [self.program("opencode"), "run", "--format", "json", *resumed, message]

    def name_in(self, output: str) -> str:
        return next(str(json.loads(line)["sessionID"]) for line in output.splitlines() if '"sessionID"' in line)


class Qwen(Printed):
    """Qwen Code, its own prompt and tools."""

    def prepare(self) -> dict[str, str]:
        return {"OPENAI_BASE_URL": self.setting.api, "OPENAI_API_KEY": "none", "OPENAI_MODEL": MODEL}

    def command(self, conversation: str, first: bool, message: str) -> list[str]:
        number = str(uuid.uuid5(uuid.NAMESPACE_DNS, conversation))
        named = ["--session-id" if first else "--resume", number]
        return [self.program("qwen"), "--auth-type", "openai", *named, "-p", message]


class Vibe(Printed):
    """Mistral Vibe, its own prompt and tools."""

    def prepare(self) -> dict[str, str]:
        self.setting.write(
            ".vibe/config.toml",
            f'''active_model = "{MODEL}"
enable_update_checks = false
enable_telemetry = false
[[providers]]
name = "local"
api_base = "{self.setting.api}"
api_key_env_var = "LOCAL_KEY"
api_style = "openai"
backend = "generic"
[[models]]
name = "{MODEL}"
provider = "local"
alias = "{MODEL}"
''',
        )
        return {"LOCAL_KEY": "none", "MISTRAL_API_KEY": "none", "VIBE_HOME": str(self.setting.home / ".vibe")}

    def command(self, conversation: str, first: bool, message: str) -> list[str]:
        return [self.program("vibe"), "-p", message, *([] if first else ["--resume", self.names[conversation]])]

    def name_in(self, output: str) -> str:
        return newest(self.setting.home / ".vibe/logs/session/unified")


class Nanobot(Printed):
    """nanobot, its own prompt and tools."""

    def prepare(self) -> dict[str, str]:
        defaults = {"model": MODEL, "provider": "custom", "maxTokens": 2000, "contextWindowTokens": WINDOW}
        settings = {
            "providers": {"custom": {"apiKey": "none", "apiBase": self.setting.api}},
            "agents": {"defaults": defaults},
        }
        self.setting.write(".nanobot/config.json", json.dumps(settings))
        return {}

    def command(self, conversation: str, first: bool, message: str) -> list[str]:
        return [self.program("nanobot"), "agent", "--no-markdown", "-s", f"cli:{conversation}", "-m", message]


class Sgpt(Printed):
    """ShellGPT, a role with the script's system prompt."""

    def prepare(self) -> dict[str, str]:
        home = self.setting.home
        settings = {
            "DEFAULT_MODEL": MODEL,
            "API_BASE_URL": self.setting.api,
            "OPENAI_API_KEY": "none",
            "USE_LITELLM": "false",
            "CACHE_PATH": home / "cache",
            "CHAT_CACHE_PATH": home / "chat",
            "ROLE_STORAGE_PATH": home / ".config/shell_gpt/roles",
            "OPENAI_USE_FUNCTIONS": "false",
            "SHOW_FUNCTIONS_OUTPUT": "false",
        }
        self.setting.write(".config/shell_gpt/.sgptrc", "".join(f"{key}={value}\n" for key, value in settings.items()))
        role = {"name": "shop", "role": f"You are shop\n{self.setting.system}"}
        self.setting.write(".config/shell_gpt/roles/shop.json", json.dumps(role))
        return {}

    def command(self, conversation: str, first: bool, message: str) -> list[str]:
        role = ["--role", "shop"] if first else []
        return [self.program("sgpt"), "--no-cache", *role, "--chat", conversation, message]
