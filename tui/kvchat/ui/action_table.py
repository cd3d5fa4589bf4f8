"""The one table of what a person can do: key bindings, footer, palette, help and slash commands all read it.

The rule: an action that is not in this table does not exist, and one that is can be found in every one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Context = Literal["app", "composer", "transcript", "sidebar"]


@dataclass(frozen=True, slots=True)
class Action:
    """Something a person can do."""

    id: str
    """Its name in [keys]; the part before a dot is its context."""
    keys: str
    """Default keys, separated by commas; empty: none."""
    label: str
    """Two or three words: the footer, the palette."""
    help: str
    """What it does, in a sentence: the tooltip, the palette, the help."""
    group: str
    slash: str = ""
    """Its slash command, without the slash."""
    argument: str = ""
    """What may follow the slash command."""
    footer: str = ""
    """Its word in the footer; empty: it is not there."""
    palette: bool = True
    reason: str = ""
    """Why it has no slash command or no palette entry."""
    method: str = ""
    """What does it on the main screen: a method of it or of one of its controllers, `messages.edit`."""
    run: str = ""
    """The Textual action of its keys in its context, where it is not the last part of the id."""

    @property
    def context(self) -> Context:
        """Where its keys work: everywhere, or where the focus is."""
        match self.id.partition(".")[0]:
            case "composer" | "transcript" | "sidebar" as place if "." in self.id:
                return place
            case _:
                return "app"

    @property
    def key_list(self) -> tuple[str, ...]:
        return tuple(self.keys.split(",")) if self.keys else ()

    @property
    def action(self) -> str:
        """The Textual action, to be bound in its context."""
        if self.context == "app":
            return f"do({self.id!r})"
        return self.run or self.id.rpartition(".")[2].replace("-", "_")


_TYPING = "it is a way of typing"
_MOVING = "it moves within what has the focus"

ACTIONS: tuple[Action, ...] = (
    Action("new", "ctrl+n", "New conversation", "Begin a new conversation.", "Conversations", "new", footer="new",
           method="conversations.new"),
    Action("next", "ctrl+pagedown,alt+down,f9", "Next conversation", "Open the next conversation of the list.",
           "Conversations", "next", method="conversations.next"),
    Action("previous", "ctrl+pageup,alt+up,f8", "Previous conversation", "Open the conversation above in the list.",
           "Conversations", "previous", method="conversations.previous"),
    Action("list", "ctrl+s", "List", "Choose a conversation from the list, with a filter.", "Conversations", "list",
           footer="list", method="conversations.pick"),
    Action("search", "ctrl+r", "Search", "Search in all conversations.", "Conversations", "search", "WORDS",
           footer="search", method="conversations.search"),
    Action("rename", "f12", "Rename", "Give this conversation another title.", "Conversations", "rename", "TITLE",
           method="conversations.rename"),
    Action("delete", "f10", "Delete conversation", "Put this conversation into the trash; Undo brings it back.",
           "Conversations", "delete", method="conversations.delete"),
    Action("export", "f4", "Export", "Write this conversation, or all of them, to a file.", "Conversations", "export",
           "FILE", footer="export", method="conversations.export"),

    Action("stop", "escape", "Stop", "Stop the answer and keep what came.", "This conversation", "stop", method="stop"),
    Action("undo", "ctrl+underscore,ctrl+slash", "Undo",
           "Take back the last deletion, edit, new answer or change of branch.", "This conversation", "undo",
           method="conversations.undo"),
    Action("find", "ctrl+f", "Find", "Search in this conversation.", "This conversation", "find", "WORDS",
           method="findbar.open"),
    Action("tree", "", "Tree of branches", "Show every branch of this conversation and go to one.", "This conversation",
           "tree", method="messages.tree"),
    Action("compact", "", "Compact conversation", "Go on with a summary in place of the older turns, on a new branch. "
           "Its price is shown first.", "This conversation", "compact", method="compaction.compact"),
    Action("parameters", "ctrl+o", "Parameters", "Change temperature and the like; nothing is read again for it.",
           "This conversation", "parameters", method="options.parameters"),
    Action("system", "", "System prompt", "Change the system prompt, or take one from the library. Its price is shown "
           "first.", "This conversation", "system", "TEXT", method="options.system_prompt"),
    Action("model", "ctrl+l", "Model and server", "Choose the model and the server; looks which servers run here.",
           "This conversation", "model", "NAME", method="server.choose"),
    Action("thinking", "ctrl+t", "Thinking", "Let the model think before it answers, or not, or how much. Its price is "
           "shown first.", "This conversation", "thinking", "on|off|auto|low|medium|high", method="options.thinking"),
    Action("inspector", "f2", "Cache", "Show what the server had cached, turn by turn, and why it missed.",
           "This conversation", "cache", footer="cache", method="inspect"),

    Action("doctor", "", "Doctor", "Examine the server: what it reuses, how fast it reads, what to change.",
           "This conversation", "doctor", method="server.doctor"),

    Action("memory", "f5", "Memory", "Show what is remembered, what waits for your yes, and what is being noted; or "
           "switch memory on or off in this conversation.", "Memory", "memory", "on|off|now", method="memory.run"),
    Action("remember", "", "Remember", "Have a sentence remembered, in every conversation.", "Memory", "remember",
           "TEXT", method="memory.remember"),
    Action("forget", "", "Forget", "Delete the memory that has these words; of several, choose in the list. It can be "
           "undone.", "Memory", "forget", "WORDS", method="memory.forget"),

    Action("documents", "f6", "Documents", "Show the folders that are indexed, add one, and choose which are searched "
           "for this conversation.", "Documents", "documents", "add PATH|remove NAME|off|ask NAME|always NAME|WORDS",
           method="documents.run"),

    Action("transcript.previous", "up,k", "Message above", "Select the message above.", "Messages", palette=False,
           reason=_MOVING, run="select(-1)"),
    Action("transcript.next", "down,j", "Message below", "Select the message below.", "Messages", palette=False,
           reason=_MOVING, run="select(1)"),
    Action("transcript.page_up", "pageup", "Page up", "Scroll up by a page.", "Messages", palette=False, reason=_MOVING,
           run="page(-1)"),
    Action("transcript.page_down", "pagedown", "Page down", "Scroll down by a page.", "Messages", palette=False,
           reason=_MOVING, run="page(1)"),
    Action("transcript.first", "home", "First message", "Go to the beginning.", "Messages", palette=False,
           reason=_MOVING),
    Action("transcript.last", "end", "Last message", "Go to the end and follow the answer.", "Messages", palette=False,
           reason=_MOVING),
    Action("transcript.edit", "e", "Edit message", "Change a question and ask again, on a new branch. Its price is "
           "shown first.", "Messages", "edit", method="messages.edit"),
    Action("transcript.regenerate", "r", "Another answer", "Have the question answered again, on a new branch.",
           "Messages", "regenerate", method="messages.regenerate"),
    Action("transcript.copy", "y", "Copy message", "Copy the selected message, else the last answer.", "Messages",
           "copy", method="messages.copy_message"),
    Action("transcript.code", "1,2,3,4,5,6,7,8,9", "Copy code", "Copy the first to ninth code block of the message.",
           "Messages", "code", "NUMBER", run="copy_code", method="messages.copy_code"),
    Action("transcript.source", "o", "Sources", "Show what an answer cites, or the passages and files that a question "
           "was sent with.", "Messages", "source", "NUMBER", method="documents.source"),
    Action("transcript.branches", "b", "Branches here", "Show the other branches at this message.", "Messages",
           "branches", method="messages.tree"),
    Action("transcript.sibling_previous", "left", "Previous version", "Go to the version of this message before this "
           "one.", "Messages", palette=False, reason=_MOVING, run="sibling(-1)"),
    Action("transcript.sibling_next", "right", "Next version", "Go to the version of this message after this one.",
           "Messages", palette=False, reason=_MOVING, run="sibling(1)"),
    Action("transcript.fork", "f", "Fork", "Go on from this message in a conversation of its own.", "Messages", "fork",
           method="messages.fork"),
    Action("transcript.delete", "d", "Delete turn", "Go on without this question and its answer, on a new branch.",
           "Messages", "drop", method="messages.delete_turn"),
    Action("transcript.fold", "enter,space", "Fold or unfold", "Fold or unfold reasoning and context of the message.",
           "Messages", "fold", method="transcript.action_fold"),

    Action("composer.enter", "enter", "Send", "Send the message.", "Writing", palette=False, reason=_TYPING,
           run="key('enter')"),
    Action("composer.newline", "shift+enter,ctrl+j,alt+enter", "New line",
           "Begin a new line; \\ and Enter does it too.", "Writing", palette=False, reason=_TYPING, run="key('other')"),
    Action("composer.send", "ctrl+enter", "Send", "Send the message, whatever Enter does.", "Writing", palette=False,
           reason=_TYPING, run="key('send')"),
    Action("composer.interrupt", "ctrl+c", "Copy, clear or stop",
           "Copy the selection, else clear the message, else stop the answer. It never quits.", "Writing",
           palette=False, reason="it depends on what is selected, written and running", run="key('interrupt')"),
    Action("composer.end", "ctrl+d", "Delete right, or quit", "Delete the character on the right; quit if there is no "
           "message.", "Writing", palette=False, reason=_TYPING, run="key('end')"),
    Action("memories", "shift+f5", "What goes along", "Choose which memories and passages go with the message; twice: "
           "none. Takes passages that are offered.", "Writing",
           reason="a command would take the place of the message", method="context.choose"),
    Action("attach", "shift+f6", "Attach file", "Attach a file to the message, as it is now; of one that was attached "
           "before, what has changed in it.", "Writing", "attach", "PATH", method="context.attach"),
    Action("editor", "ctrl+g", "Editor", "Write the message in your own editor.", "Writing", "editor",
           method="sending.write_outside"),

    Action("sidebar.open", "enter", "Open", "Open the conversation under the cursor.", "List", palette=False,
           reason=_MOVING),
    Action("sidebar.menu", "m", "Menu", "Show what can be done with the conversation under the cursor.", "List",
           palette=False, reason=_MOVING),
    Action("sidebar.rename", "r", "Rename", "Give the conversation under the cursor another title.", "List",
           palette=False, reason="the action rename has them"),

    Action("sidebar", "f3", "Sidebar", "Show or hide the list beside the conversation.", "General", "sidebar",
           method="toggle_sidebar"),
    Action("theme", "", "Theme", "Choose the colours.", "General", "theme", "NAME", method="options.theme"),
    Action("palette", "ctrl+p", "Palette", "Find an action by its name.", "General", footer="palette", palette=False,
           reason="it is the palette", method="app.action_command_palette"),
    Action("help", "f1", "Help", "Show every key and command.", "General", "help", footer="help", method="show_help"),
    Action("quit", "ctrl+q", "Quit", "Leave kvchat. What is running is stopped and kept.", "General", "quit",
           method="app.action_quit"),
)

BY_ID: Mapping[str, Action] = {action.id: action for action in ACTIONS}
