"""Why an act cannot be done now, in words."""

from __future__ import annotations

from enum import StrEnum

from kvchat.text.store_problems import StoreProblem


class ChatProblem(StrEnum):
    """Why the conversation service refuses an act."""

    TOLD = "{sentence}"
    """By another part of kvchat."""
    # sending
    RUNNING = "An answer is still running here. Stop it (Esc), or wait for it."
    UNDECIDED = "Choose one of the answers first."
    HOW_MANY = "Ask for 2 to {most} answers, not {number}."
    HOW_MANY_MODELS = "Name 2 to {most} models."
    UNKNOWN_MODEL = "This server has no model {model}."
    ANSWERED_ELSEWHERE = "Another window is answering here. Wait for it, or stop it there."
    COMPACTING = "This conversation is being compacted. Stop that first (Esc), or wait for it."
    NOT_SENT = "The message was not sent."
    IN_TRASH = StoreProblem.IN_TRASH.value
    HELD = "The queue is held."
    TOO_LONG = ("Too long: the prompt has {tokens:,} tokens, the server's window holds {window:,}. Shorten the "
                "question, begin a new conversation, or give the server a larger window.")
    ABOUT_TOO_LONG = TOO_LONG.replace("{tokens", "about {tokens")
    OUTSIDE = "{paths} is outside the working folder and the collections. Nothing was sent."
    ALL_OUTSIDE = "{paths} are outside the working folder and the collections. Nothing was sent."
    # going on with an answer
    NO_ANSWER = "That is a question. Select the answer to continue."
    CALLED_TOOL = "The model called a tool here, and kvchat has none: there is no text to continue."
    STILL_COMING = "This answer is still coming."
    WINDOW_FULL = "The context window is full. Compact the conversation, then ask again."
    COMPLETE = "This answer is complete. To hear more, ask for it."
    # what goes with a message
    NOT_SEARCHED = "The documents could not be searched; send it again, or without the mention."
    UNCHANGED = "{file} stands in this conversation already and has not changed since."
    BASE_GONE = "The file that “{file}” is about is not in this branch, and has changed again; attach it anew."
    # conversations
    EMPTY = "This conversation is empty; there is nothing to tag."
    NO_PERSONA = "There is no persona {name}. They are TOML files in {folder}."
    NO_PERSONA_BUT = "There is no persona {name}; did you mean {near}?"
    BROKEN_PERSONA = "The persona {name} cannot be used: {problem}."
    PERSONA_FILE = "{name} is a file, {name}.toml in {folder}: change it there."
    NO_PROFILE = "The persona {persona} asks for the profile {profile}, which the settings do not have."
    NO_PROFILE_BUT = ("The persona {persona} asks for the profile {profile}, which the settings do not have; did you "
                      "mean {near}?")
    NO_MODEL = "The persona {persona} asks for the model {model}, which {url} does not have. It has: {models}."
    ENGINE_HAS_NO_MODEL = NO_MODEL.replace("{url}", "the built-in engine")
    # kept states
    KEEP_INCOGNITO = "An incognito conversation writes nothing: its state cannot be kept."
    KEEP_EMPTY = "This conversation is empty; there is nothing to keep."
    KEEP_NO_ANSWER = "There is no answer here yet. Keep the conversation when it has one."
    KEEP_OFF = "States are not saved: the setting engine.snapshots is off."
    KEEP_NO_ROOM = "No room: kept states may take {room}. Raise cache.kept_gb."
    KEEP_NO_ROOM_BUT = "No room: kept states may take {room}. Release “{title}” ({frees}) or raise cache.kept_gb."
    # trunks
    NO_TRUNKS = "An incognito run has no trunks."
    TRUNK_SYNTAX = "To make a trunk: /trunk add NAME PATH"
    TRUNK_TOO_LONG = ("These files have {tokens:,} tokens, the server's window holds {window:,}. Name fewer files, or "
                      "give the server a larger window.")
    TRUNK_ABOUT_TOO_LONG = TRUNK_TOO_LONG.replace("{tokens", "about {tokens")
    # the server
    EXAMINING = "The server is being examined already."
    ANSWERING = "An answer is running on this server. Ask again when it has ended."
    EXAMINATION_ENDED = "The examination was ended by a question that went first. Ask again later."
    # compaction
    NO_OLDER_TURNS = ("There is nothing to compact yet: a summary takes the place of the older turns, and the last one "
                      "stays.")
    NO_ROOM = ("The first turn alone fills the window, so there is no room to summarise it. Begin a new conversation, "
               "or give the server a larger window.")
    COMPACTING_ELSEWHERE = "Another conversation is being compacted. Wait until that is done."
    NO_SUMMARY = "No summary came, so nothing was changed. {why}"
    STILL_THINKING = ("No summary came (the model was still thinking when it had to end), so nothing was changed. "
                      "Another try may do better.")
    EMPTY_SUMMARY = "No summary came (the answer held no text), so nothing was changed. Another try may do better."
    LONG_SUMMARY = ("The summary has {tokens:,} tokens, and the turns it is to replace have {replaced:,}. That makes "
                    "no room, so nothing was changed.")
    # memory and documents
    MEMORY_OFF = "Memory is off for this conversation. Switch it on first: /memory on."
    NOTHING_NEW = "There is nothing new in this conversation: all of it was gone through already."
    NO_MEMORY = "There is no memory in an incognito run."
    NO_DOCUMENTS = "There are no documents in an incognito run."
    NOT_INDEXED = "It could not be indexed ({error})."
    NO_INDEX_WRITTEN = "The search index cannot be written; its folder is read-only or full."
