"""Small chat templates, each with one habit of the template of a well-known family of models."""

from __future__ import annotations

CHATML = """\
{%- for m in messages -%}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}
"""

DATED = """\
{%- if not date_string is defined -%}
{%- if strftime_now is defined -%}{%- set date_string = strftime_now("%d %b %Y") -%}
{%- else -%}{%- set date_string = "26 Jul 2024" -%}{%- endif -%}{%- endif -%}
{%- if messages[0].role == 'system' -%}{%- set first = messages[0].content -%}{%- set rest = messages[1:] -%}
{%- else -%}{%- set first = '' -%}{%- set rest = messages -%}{%- endif -%}
<|im_start|>system
Cutting Knowledge Date: December 2023
Today Date: {{ date_string }}

{{ first }}<|im_end|>
{% for m in rest -%}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}
"""
"""As Llama 3.1 to 3.3: the date in front of everything, unless `date_string` fixes it."""

FORGETFUL = """\
{%- set ns = namespace(last_query_index=-1) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last_query_index = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for m in messages -%}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' -%}
{%- set content = m.content -%}{%- set reasoning_content = '' -%}
{%- if m.reasoning_content is string -%}{%- set reasoning_content = m.reasoning_content -%}
{%- elif '</think>' in content -%}{%- set content = content.split('</think>')[-1] -%}{%- endif -%}
{%- if loop.index0 > ns.last_query_index and reasoning_content -%}<think>
{{ reasoning_content }}
</think>

{% endif -%}{{ content }}{%- else -%}{{ m.content }}{%- endif -%}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}
"""
"""As Qwen3: reasoning stays until the next question. There is no switch."""

KEEPING = FORGETFUL.replace(
    "loop.index0 > ns.last_query_index and",
    "(loop.index0 > ns.last_query_index or (preserve_thinking is defined and preserve_thinking)) and",
)
"""As newer reasoning models: earlier reasoning stays if that is asked."""

SWITCHED = FORGETFUL.replace(
    "<|im_start|>assistant\n{% endif -%}\n",
    """<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false -%}<think>

</think>

{% endif -%}{%- endif -%}
""",
)
"""As Qwen3 itself: an empty thought in front of the answer where thinking is off."""

EFFORT = CHATML.replace(
    "{%- for m in messages -%}",
    """{%- set effort = reasoning_effort | default('medium') -%}
<|im_start|>system
Reasoning: {{ effort }}<|im_end|>
{% for m in messages -%}""",
    1,
)
"""As gpt-oss: how much is thought stands in front of everything."""

NO_SYSTEM = """\
{%- if messages[0].role == 'system' -%}{{ raise_exception('System role not supported') }}{%- endif -%}
{%- for m in messages -%}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{%- endif -%}
<|im_start|>{{ 'model' if m.role == 'assistant' else m.role }}
{{ m.content | trim }}<|im_end|>
{% endfor -%}{%- if add_generation_prompt -%}<|im_start|>model
{% endif -%}
"""
"""As Gemma 1 to 3: no system message, and the roles must alternate."""

MOVING = """\
{%- if messages[0].role == 'system' -%}{%- set system_message = messages[0].content -%}
{%- set loop_messages = messages[1:] -%}{%- else -%}{%- set loop_messages = messages -%}{%- endif -%}
{%- for message in loop_messages -%}
{%- if message.role == 'user' -%}
{%- if loop.last and system_message is defined -%}[INST]{{ system_message }}

{{ message.content }}[/INST]{%- else -%}[INST]{{ message.content }}[/INST]{%- endif -%}
{%- else -%}{{ message.content }}{{ eos_token }}{%- endif -%}
{%- endfor -%}
"""
"""As Mistral-Nemo: the system message stands in front of the newest question."""

OLLAMA_CHATML = """\
{{- range .Messages }}<|im_start|>{{ .Role }}
{{ .Content }}<|im_end|>
{{ end }}<|im_start|>assistant
"""

OLLAMA_THINKING = """\
{{- $lastUserIdx := -1 -}}
{{- range $idx, $msg := .Messages -}}{{- if eq $msg.Role "user" }}{{ $lastUserIdx = $idx }}{{ end -}}{{- end }}
{{- range $i, $_ := .Messages }}<|im_start|>{{ .Role }}
{{ if (and .Thinking (gt $i $lastUserIdx)) -}}<think>{{ .Thinking }}</think>{{ end }}{{ .Content }}<|im_end|>
{{ end }}<|im_start|>assistant
"""

OLLAMA_MOVING = """\
{{- range $index, $_ := .Messages }}
{{- if eq .Role "user" }}[INST] {{ if and $.System (eq (len (slice $.Messages $index)) 1) }}{{ $.System }}

{{ end }}{{ .Content }}[/INST]
{{- else }} {{ .Content }}</s>{{ end }}
{{- end }}
"""

OLLAMA_DATED = """\
<|im_start|>system
Today is {{ currentDate }}.
{{ .System }}<|im_end|>
{{- range .Messages }}<|im_start|>{{ .Role }}
{{ .Content }}<|im_end|>
{{ end }}<|im_start|>assistant
"""

_STEPS = """\
{%- set ns = namespace(last_query_index=-1) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last_query_index = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- if tools -%}<|im_start|>system
Call a tool so: CALL.
{{ tools | tojson }}<|im_end|>
{% endif -%}
{%- for m in messages -%}
{%- if m.role == 'tool' -%}<|im_start|>user
<tool_response>
{{ m.content }}
</tool_response><|im_end|>
{% elif m.role == 'assistant' -%}<|im_start|>assistant
{% if loop.index0 > ns.last_query_index and m.reasoning_content -%}<think>
{{ m.reasoning_content }}
</think>

{% endif -%}{{ m.content or '' }}{%- for c in m.tool_calls or [] -%}{%- if not loop.first %}
{% endif -%}CALL{%- endfor -%}<|im_end|>
{% else -%}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}
"""
CALLING = {
    "object": _STEPS.replace("so: CALL", "in tags").replace(
        "CALL",
        """{{- '<tool_call>\\n{"name": "' ~ c.function.name ~ '", "arguments": ' -}}{{- c.function.arguments | tojson -}}
{{- '}\\n</tool_call>' -}}""",
    ),
    "parameters": _STEPS.replace("so: CALL", "in tags").replace(
        "CALL",
        """{{- '<tool_call>\\n<function=' ~ c.function.name ~ '>\\n' -}}
{%- for key, value in c.function.arguments | items -%}
{{- '<parameter=' ~ key ~ '>\\n' ~ value ~ '\\n</parameter>\\n' -}}{%- endfor -%}{{- '</function>\\n</tool_call>' -}}""",
    ),
    "channels": """\
{%- set ns = namespace(last_final=-1) -%}
{%- for m in messages -%}{%- if m.role == 'assistant' and not m.tool_calls -%}
{%- set ns.last_final = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- if tools -%}<|start|>developer<|message|>namespace functions {{ tools | tojson }}<|end|>{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'tool' -%}<|start|>functions.{{ m.name }} to=assistant<|channel|>commentary<|message|>
{{- m.content | tojson }}<|end|>
{%- elif m.role == 'assistant' -%}
{%- if m.reasoning_content and loop.index0 > ns.last_final -%}
<|start|>assistant<|channel|>analysis<|message|>{{ m.reasoning_content }}<|end|>{%- endif -%}
{%- if m.tool_calls -%}{%- set c = m.tool_calls[0].function -%}
<|start|>assistant to=functions.{{ c.name }}<|channel|>commentary json<|message|>{{ c.arguments | tojson }}<|call|>
{%- else -%}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>{%- endif -%}
{%- else -%}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}
""",
}
"""As Qwen3, Qwen3-Coder and gpt-oss: the thoughts of a turn's steps are gone once the next question is there."""
