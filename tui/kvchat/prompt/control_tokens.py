"""The names of the control tokens of the common model families: those that are a name in brackets.

A name is here because a tokeniser reads it as one token, or a chat template gives it a meaning. Whatever has
bars in it (`<|im_end|>`) needs no name, and what only one server knows, that server is asked for.
"""

from __future__ import annotations


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


_TAGS = _names("""
    s bos eos bod eod eot eop eoa eoh eom sop pad unk cls sep mask think tool_call tool_calls tool_response arg_key
    arg_value start_of_turn end_of_turn start_of_image end_of_image start_of_audio end_of_audio image_soft_token
    audio_soft_token image audio video img_context file_sep filename repo_name reponame gh_stars issue_start
    issue_comment issue_closed jupyter_start jupyter_text jupyter_code jupyter_output jupyter_script empty_output
    commit_before commit_msg commit_after fim_prefix fim_middle fim_suffix fim_pad fim-prefix fim-middle fim-suffix
    fim-pad endoftext end_of_text startoftext begin_of_text beginning_of_sentence end_of_sentence end_of_utterance
    end_of_document code_to_intermediate intermediate_to_code fake_token_around_image global-img bos_token eos_token
    eop_token pad_token unk_token cls_token sep_token mask_token seed:bos seed:eos seed:pad seed:think seed:tool_call
    seed:cot_budget_reflect minimax:tool_call""")
_TAGS_AS_WRITTEN = _names("PRE SUF MID")
"""Those that are another thing in small letters: `<pre>` is HTML."""
_NUMBERED_TAGS = _names("""
    unused unused_ extra_id_ reserved reserved_ reserved_token_ reserved_special_token_ special_ special_token_
    tokens_unused_ mask: dummy_ loc seg""")
_MARKS = _names("""
    MASK gMASK sMASK SEP CLS PAD UNK BOS EOS EOT EOD EOP INST SYSTEM_PROMPT AVAILABLE_TOOLS MODEL_SETTINGS TOOL_CALLS
    TOOL_RESULTS TOOL_CONTENT CALL_ID ARGS THINK IMG IMG_BREAK IMG_END PREFIX MIDDLE SUFFIX AUDIO BEGIN_AUDIO
    TRANSCRIBE""")
_MARKS_IN_ANY_CASE = _names("inst system_prompt available_tools tool_calls tool_results")


def is_control_tag(name: str) -> bool:
    """Whether `<name>` is a control token: `think`, `unused12`. In any case, because a model reads `<THINK>` too."""
    folded = name.casefold()
    return folded in _TAGS or name in _TAGS_AS_WRITTEN or _unnumbered(folded) in _NUMBERED_TAGS


def is_control_mark(name: str) -> bool:
    """Whether `[name]` is one: `INST`, `gMASK`."""
    return name in _MARKS or name.casefold() in _MARKS_IN_ANY_CASE or _unnumbered(name) == "unused"


def _unnumbered(name: str) -> str:
    """The text before the number that a name ends with; empty where it ends with none."""
    return name.rstrip("0123456789") if name[-1:].isdigit() else ""
