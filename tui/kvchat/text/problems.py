"""What kvchat refuses or what fails in it: the conversation service, the store and the index. What a server did is in
`text.faults`, what the built-in engine did in `text.engine`.

A kind of problem is a member of an enumeration, whose value is the sentence with its arguments by name. An error is
raised with both; code compares members, never words.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from kvchat.text.format import counted


class ProblemError(Exception):
    """A kind of problem and its arguments; `str` is the sentence: what happened, where, and what to do."""

    def __init__(self, problem: StrEnum, /, **arguments: object) -> None:
        super().__init__(problem.name)
        self.problem = problem
        self.arguments = arguments

    @property
    def sentence(self) -> str:
        return self.problem.value.format_map(self.arguments)

    def __str__(self) -> str:
        return self.sentence


_UNVERIFIED = "The backup {path} could not be verified and was removed"


class StoreProblem(StrEnum):
    """`where`, `path`: a file or folder. `error`: what SQLite said."""

    # a conversation, a message, an import
    UNKNOWN = 'No conversation "{id}". IDs look like 4097b73d (kvchat list).'
    AMBIGUOUS = 'Several conversations begin with "{id}". Give more digits of the id.'
    IN_TRASH = "This conversation is in the trash, so nothing was sent."
    DELETED = "This conversation was deleted for good, so nothing of it was stored."
    REPLY_DIFFERS = "The reply that this was to follow has not ended, or ended otherwise than it was known."
    GONE_ON = "Another kvchat has continued from here."
    NOT_QUEUED = "This message is not in the queue any more: another window sent it, or took it out."
    NO_IMPORT = "There is no import {id} that could be undone."
    NO_IMPORTS = "There is no import that could be undone."
    BAD_NAME = "{path} cannot be indexed: its name is not valid text. Rename it."
    # the file
    OLD_SQLITE = "kvchat needs SQLite {oldest} or newer; this Python has {version}. Use a newer Python."
    NO_FILE = "{path} is not a file. Move it away, then start kvchat again."
    NEWER = (
        "{path} was written by a newer kvchat (version {version} of its format; this one knows {known}). Use the "
        "newer kvchat. Nothing was changed."
    )
    OUTGROWN = (
        "A newer kvchat has changed the format of {path}, so this window writes nothing in it any more. Quit, and "
        "start the newer one: what is not stored yet is saved in a file then."
    )
    CLOSED = "The store is closed. Start kvchat again."
    REPLACED = (
        "{path} was moved, deleted or replaced while kvchat was using it. Put it back, or export what is on "
        "the screen; then start kvchat again."
    )
    HELD = (
        "Another kvchat has been writing for {seconds:.0f} seconds ({path} is locked). Close it, or wait until it "
        "is done."
    )
    FOLDER_HELD = (
        "Another kvchat has been writing in {folder} for {seconds:.0f} seconds. Close it, or wait until it is done."
    )
    UNUSABLE = "{where} cannot be used: {reason}. Check its permissions and the free space of its disk."
    DAMAGED = (
        "{where} is damaged ({error}). Start kvchat again: the file is moved aside and every message that can "
        "be read is saved."
    )
    LOCKED = "{where} is locked by another program. Close that program, or wait until it is done."
    DISK_FULL = "There is no room for {where}: its disk is full. Free some space, then try again."
    READ_ONLY = "{where} is read-only. Give yourself write permission on the file and its folder."
    FAILING = (
        "{where} cannot be read or written ({error}). Check its disk, its folder's permissions and the free space."
    )
    NOT_WHOLE = (
        "The conversation is no longer whole in {where} ({error}): another kvchat may have emptied the trash. "
        "Open the conversation again."
    )
    REFUSED = "{where} refused an operation ({error})."
    UNVERIFIED = f"{_UNVERIFIED}."
    UNVERIFIED_FOR = f"{_UNVERIFIED} ({{error}})."
    BESIDE_OTHERS = (
        "{path} {damage}, and another kvchat is using it. Close every kvchat, then start it again: what "
        "can be read will be saved."
    )
    # the search index
    INDEX_BUSY = "The search index is in use by another kvchat; try again."
    INDEX_UNUSABLE = "The search index cannot be used; until it can, it is held in memory."
    NO_INDEX = "{path} is not a search index of kvchat. Move it away."
    NEWER_INDEX = "{path} is the search index of a newer kvchat."
    INDEX_DAMAGED = "{path} is damaged ({error})."
    INDEX_REPLACED = "{path} was deleted or replaced."
    INDEX_NO_FILE = "{path} is not a file. Move it away."


class Damage(StrEnum):
    """What is wrong with a database, as what follows its name."""

    DELETED = "was deleted"
    EMPTY = "was empty"
    HEADER = "was not a database (its header is damaged)"
    SCHEMA = "was damaged (its schema cannot be read)"
    TABLES = "was damaged (tables are missing)"
    FOREIGN = "was not a database of kvchat"
    FOUND = "was damaged ({error})"
    DRAFT = "is of a kvchat before 0.2"


def moved_aside(database: Path, damage: str, place: Path, saved: str) -> str:
    """That a database was put into `place`, and what was `saved` of it."""
    return f"{database} {damage}. It was moved to {place}. {saved}"


def draft_moved(database: Path, place: Path) -> str:
    """That a database from before 0.2 is not read, and how its conversations are brought over."""
    go, take_out, take_in = draft_commands(place)
    return (
        f"{database} {Damage.DRAFT}. It was moved whole to {place}; memory, personas and settings stay. To have its "
        f"conversations here: {go}, then with that kvchat: {take_out}, then with this one: {take_in}"
    )


def draft_commands(place: Path) -> tuple[str, str, str]:
    """What is given in a shell to bring the conversations of a database from before 0.2 over: into its folder, with
    the kvchat of then, with this one."""
    import shlex

    try:
        folder = f"~/{shlex.quote(str(place.relative_to(Path.home())))}"
    except (ValueError, RuntimeError):
        folder = shlex.quote(str(place))
    return (
        f"cd {folder}",
        "kvchat --data-dir . export --all -f json -o chats.json",
        "kvchat --data-dir ../.. import chats.json",
    )


def draft_lines(place: Path) -> list[str]:
    """The same for a page, until it is done: what one line has is given as it is."""
    go, take_out, take_in = draft_commands(place)
    return [
        "Conversations of a kvchat before 0.2 are set aside. To have them here:",
        go,
        take_out,
        "by that kvchat, and by this one:",
        take_in,
    ]


def saved_words(messages: int, conversations: int, backup: Path | None, whole: bool | None) -> str:
    """What was saved of a damaged database. `backup`: what it was put together with; `whole`: whether every row could
    be read, None: none could."""
    saved = f"{messages} messages in {conversations} conversations"
    if whole is None and backup is None:
        return "Nothing could be read from it, and there is no backup; a new database was begun."
    if whole is None:
        return f"Nothing could be read from it; {saved} are back from the backup {backup}."
    source = "" if backup is None else f" and from the backup {backup}"
    return f"{saved} were saved from it{source}{'' if whole else '; some rows could not be read'}."


def log_moved(database: Path, place: Path, offer: str) -> str:
    return f"{database} is gone, but its log was there: it was moved to {place} and a new database was begun. {offer}"


def log_damaged(database: Path, offer: str) -> str:
    return (
        f"kvchat ended without closing {database}, and the end of its log is damaged: what was said last before "
        f"that is missing. {offer}"
    )


def finished(database: Path, place: Path) -> str:
    """That a database which an earlier run has saved is in use now."""
    return f"{database} was damaged. It was moved to {place}, and what could be read is in a new database."


def opened_for_reading(refusal: str) -> str:
    """That a database whose disk takes no writes was opened all the same."""
    return f"{refusal} Until then the conversations can only be read."


def backup_words(newest: Path | None, database: Path) -> str:
    """The way back."""
    if newest is None:
        return "There is no backup."
    return f"The newest backup is {newest}: to go back to it, end kvchat and copy it to {database}."


def recovered_words(answers: int) -> str:
    """That answers were running when their kvchat ended."""
    return (
        "kvchat ended during an answer; its text so far is kept."
        if answers == 1
        else f"kvchat ended during {answers} answers; their text so far is kept."
    )


def rescued_sentence(conversations: int, path: Path | None, reason: str) -> str:
    """Where the conversations are that could not be saved. `path` None: nowhere, for this `reason`."""
    many = counted(conversations, "conversation")
    if path is None:
        return f"{many} could not be saved anywhere: {reason}"
    return f"{many} could not be saved; {'it is' if conversations == 1 else 'they are'} in {path}."


class ChatProblem(StrEnum):
    """Why the conversation service refuses an act."""

    TOLD = "{sentence}"
    """By another part of kvchat."""
    # sending
    RUNNING = "An answer is still running here. Stop it, or wait for it."
    UNDECIDED = "Choose one of the answers first."
    HOW_MANY = "Ask for 2 to {most} answers, not {number}."
    HOW_MANY_MODELS = "Name 2 to {most} models."
    UNKNOWN_MODEL = "This server has no model {model}."
    ANSWERED_ELSEWHERE = "Another window is answering here. Wait for it, or stop it there."
    COMPACTING = "This conversation is being compacted. Stop that first, or wait for it."
    NOT_SENT = "The message was not sent."
    IN_TRASH = StoreProblem.IN_TRASH.value
    HELD = "The queue is held."
    TOO_LONG = (
        "Too long: the prompt has {tokens:,} tokens, the server's window holds {window:,}. Shorten the "
        "question, begin a new conversation, or give the server a larger window."
    )
    REPLACED = "This message is not here any more: another window asked for another one in its place."
    CALLS_LOST = (
        "A damaged file has lost a part of this branch: a tool's call and its result are not both there, and servers "
        "refuse that. Fork the conversation at its last answer: the fork can be sent."
    )
    ABOUT_TOO_LONG = TOO_LONG.replace("{tokens", "about {tokens")
    OUTSIDE = "{path} is outside the working folder and the collections."
    SECRET = "{path} may hold keys or passwords."
    NEEDS_YES = "{files} Nothing was sent."
    # going on with an answer
    NO_ANSWER = "That is a question. Select the answer to continue."
    CALLED_TOOL = "The model called a tool here, and kvchat has none: there is no text to continue."
    STILL_COMING = "This answer is still coming."
    WINDOW_FULL = "The context window is full. Compact the conversation, then ask again."
    COMPLETE = "This answer is complete. To hear more, ask for it."
    # what goes with a message
    NOT_SEARCHED = "The documents could not be searched; send it again, or without the mention."
    UNCHANGED = "{file} is in this conversation already and has not changed since."
    BASE_GONE = "The file that “{file}” is about is not in this branch, and has changed again; attach it again."
    # conversations
    EMPTY = "This conversation is empty; there is nothing to tag."
    NO_TOOL = "There is no tool {name}. They are {known}."
    TOOL_SERVERS = "{why}"
    TOOLS_NOT_LISTED = "The tools of {name} are not known yet: /tools {name} shows its command line and asks it."
    TOOL_SERVER_FAILED = "The MCP server {name} gives no tools: {why}"
    NO_TOOLS = (
        "{model} has no tools: its chat template has no place for them. Begin a conversation without tools, or choose "
        "another model."
    )
    NO_PERSONA = "There is no persona {name}. They are TOML files in {folder}."
    NO_PERSONA_BUT = "There is no persona {name}; did you mean {near}?"
    BROKEN_PERSONA = "The persona {name} cannot be used: {problem}."
    PERSONA_FILE = "{name} is a file, {name}.toml in {folder}: change it there."
    NO_PROFILE = "The persona {persona} asks for the profile {profile}, which the settings do not have."
    NO_PROFILE_BUT = (
        "The persona {persona} asks for the profile {profile}, which the settings do not have; did you mean {near}?"
    )
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
    NO_TRUNK_YET = "There is no trunk {name}. To make one: kvchat trunk add NAME PATH."
    NO_SUCH_TRUNK = "There is no trunk {name}. There are: {names}."
    TRUNK_SYNTAX = "To make a trunk: /trunk add NAME PATH"
    TRUNK_TOO_LONG = (
        "These files have {tokens:,} tokens, the server's window holds {window:,}. Name fewer files, or "
        "give the server a larger window."
    )
    TRUNK_ABOUT_TOO_LONG = TRUNK_TOO_LONG.replace("{tokens", "about {tokens")
    # the server
    NO_SUCH_MODEL = "This server has no model {model}. /model lists its models."
    EXAMINING = "The server is being examined already."
    ANSWERING = "An answer is running on this server. Ask again when it has ended."
    EXAMINATION_ENDED = "The examination was ended by a question that went first. Ask again later."
    # compaction
    NO_OLDER_TURNS = (
        "There is nothing to compact yet: a summary takes the place of the older turns, and the last one stays."
    )
    NO_ROOM = (
        "The first turn alone fills the window, so there is no room to summarise it. Begin a new conversation, "
        "or give the server a larger window."
    )
    COMPACTING_ELSEWHERE = "Another conversation is being compacted. Wait until that is done."
    NO_SUMMARY = "No summary came, so nothing was changed. {why}"
    STILL_THINKING = (
        "No summary came (the model was still thinking when it had to end), so nothing was changed. "
        "Another try may do better."
    )
    EMPTY_SUMMARY = "No summary came (the answer held no text), so nothing was changed. Another try may do better."
    LONG_SUMMARY = (
        "The summary has {tokens:,} tokens, and the turns it is to replace have {replaced:,}. That makes "
        "no room, so nothing was changed."
    )
    # memory and documents
    MEMORY_OFF = "Memory is off for this conversation. Switch it on first: /memory on."
    NOTHING_NEW = "There is nothing new in this conversation: what is read for memories was read already."
    NEVER_READ = (
        "This conversation is not read for memories: it was asked with kvchat ask, or while memory was off. Write in "
        "it here, and what is new is read."
    )
    NO_MEMORY = "There is no memory in an incognito run."
    NO_DOCUMENTS = "There are no documents in an incognito run."
    NOT_INDEXED = "It could not be indexed ({error})."
    NO_INDEX_WRITTEN = "The search index cannot be written; its folder is read-only or full."
