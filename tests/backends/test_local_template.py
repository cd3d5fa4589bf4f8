"""The chat template of a model whose files lie on this machine: found by path and by name, and never worth an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from engine_talk import talk_with

import chat_templates
from kvchat.backends.dialects.mlxlm import MlxLmBackend
from kvchat.backends.dialects.sglang import SglangBackend
from kvchat.backends.local_template import local_template
from kvchat.backends.template import reasoning_option_in
from standins.mlxlm import MlxLmStandIn
from standins.sglang import SglangStandIn

KEEPING = ("preserve_thinking", True)


def hub_model(hub: Path, name: str) -> Path:
    """The folder of a model in the hub's cache."""
    kept = hub / f"models--{name.replace('/', '--')}"
    folder = kept / "snapshots/0123abcd"
    folder.mkdir(parents=True)
    (kept / "refs").mkdir()
    (kept / "refs/main").write_text("0123abcd")
    return folder


@pytest.mark.parametrize("written", ["file", "field", "several"])
def test_the_template_is_found_where_programs_put_it(tmp_path: Path, written: str) -> None:
    folder = hub_model(tmp_path / "hub", "owner/model")
    if written == "file":
        (folder / "chat_template.jinja").write_text("{{ one }}")
    else:
        named = [{"name": "tool_use", "template": "{{ two }}"}, {"name": "default", "template": "{{ one }}"}]
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"chat_template": "{{ one }}" if written == "field" else named})
        )
    env = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    assert local_template("owner/model", env, tmp_path) == "{{ one }}"
    assert local_template(str(folder), {}, tmp_path) == "{{ one }}"


@pytest.mark.parametrize("config", ["", "{", "[]", '{"chat_template": 3}', '{"chat_template": [3, {}]}', "[" * 100_000])
def test_what_cannot_be_read_is_an_empty_text(tmp_path: Path, config: str) -> None:
    folder = hub_model(tmp_path / "hub", "owner/model")
    (folder / "tokenizer_config.json").write_text(config)
    env = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    assert local_template("owner/model", env, tmp_path) == ""
    for name in ("owner/other", "../../owner", "a/b/c", "", "\0"):
        assert local_template(name, env, tmp_path) == ""


def test_the_option_is_read_in_the_template() -> None:
    assert reasoning_option_in(chat_templates.KEEPING) == KEEPING
    assert reasoning_option_in("{%- if not clear_thinking -%}") == ("clear_thinking", False)
    assert reasoning_option_in(chat_templates.FORGETFUL) is None


@pytest.mark.parametrize("kind", ["sglang", "mlx-lm"])
async def test_a_server_of_this_machine_is_asked_to_keep_reasoning_by_the_models_own_option(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "chat_template.jinja").write_text(chat_templates.KEEPING)
    server = SglangStandIn(model_path=str(tmp_path)) if kind == "sglang" else MlxLmStandIn(model=str(tmp_path))
    async with server:
        talk = await talk_with(server, SglangBackend if kind == "sglang" else MlxLmBackend)
    assert talk.backend.info.reasoning_option == KEEPING
    assert talk.backend.info.template is not None and talk.backend.info.template.drops_reasoning is True
