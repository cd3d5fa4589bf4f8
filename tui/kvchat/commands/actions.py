"""The one table of what can be done: keys, footer, palette, help, slash commands and the hints of the dialogs all read
it. An action that is not in this table does not exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace


class Action(Struct, frozen=True):
    """Something a user can do."""

    id: str
    """Its name in [keys]; the part before a dot is its context."""
    keys: str
    """Default keys, separated by commas; empty: none."""
    label: str
    """Two or three words: the footer, the palette."""
    help: str
    """What it does, in a sentence: the tooltip, the palette, the help."""
    method: str = ""
    """What does it: an act of `commands.acts`, as `acts.conversations.keep`; else a method of the main screen or of one
    of its controllers, as `messages.edit`."""
    argument: str = ""
    """What may follow the slash command."""
    group: str = ""
    slash: str = ""
    """Its slash command, without the slash."""
    also: str = ""
    """The same slash command by another name."""
    footer: str = ""
    """Its word in the footer; empty: it is not there."""
    run: str = ""
    """The Textual action of its keys in its context, where it is not the last part of the id."""
    vi_keys: str = ""
    """Further keys, with the setting `vi_keys`."""
    gives_way: bool = False
    """Whether it leaves its keys to an action that the user gives them to, without a warning."""
    asks: bool = False
    """Whether the act may ask the user something: the main screen does it in a worker."""
    waits: bool = False
    """Whether that is so where it has an argument, for which it may wait for another program."""

    @property
    def context(self) -> str:
        """Where its keys work: `app` everywhere on the main screen, else where the focus is, or in a dialog."""
        return self.id.partition(".")[0] if "." in self.id else "app"

    @property
    def key_list(self) -> tuple[str, ...]:
        return tuple(self.keys.split(",")) if self.keys else ()

    @property
    def palette(self) -> bool:
        """Whether the palette has it: all that the main screen does, but itself and what is about a row of the list."""
        return bool(self.method) and self.context != "sidebar" and self.id != "palette"

    @property
    def action(self) -> str:
        """The Textual action, to be bound in its context."""
        if self.method and not self.run:
            return f"do({self.id!r})" if self.context == "app" else f"screen.do({self.id!r})"
        return self.run or self.id.rpartition(".")[2].replace("-", "_")


def _acts(group: str, *actions: Action) -> Iterator[Action]:
    """Actions with a slash command; it is the last part of the id where no other is given."""
    for action in actions:
        name = action.id.rpartition(".")[2].replace("_", "-")
        yield replace(action, group=group, slash=action.slash or name)


def _keys(context: str, group: str, *rows: tuple[str, ...]) -> Iterator[Action]:
    """Actions that are keys of what has the focus, or of a dialog: of each its name, keys, label, help, its Textual
    action and the keys of vi."""
    for name, keys, label, help, *more in rows:
        run, vi_keys = (*more, "", "")[:2]
        if not run and context in ("memory", "documents"):
            run = f"act('{name}')"
        yield Action(f"{context}.{name}", keys, label, help, group=group, run=run, vi_keys=vi_keys)


ACTIONS: tuple[Action, ...] = (
    *_acts(
        "Conversations",
        Action(
            "new",
            "ctrl+n",
            "New conversation",
            "Begin a new conversation; with the names of tools, one in which the model may call them.",
            "acts.conversations.new",
            "TOOLS",
            also="clear",
            footer="new",
        ),
        Action(
            "persona",
            "",
            "New with persona",
            "Begin a new conversation with a persona: its system prompt, model and parameters.",
            "acts.conversations.new_with_persona",
            "NAME",
            asks=True,
        ),
        Action(
            "trunk",
            "",
            "New with trunk",
            "Begin a new conversation with a trunk: files that are prefilled once for many conversations. add "
            "NAME PATH makes one.",
            "acts.conversations.new_with_trunk",
            "NAME",
            asks=True,
        ),
        Action(
            "next",
            "ctrl+pagedown,alt+down,f9",
            "Next conversation",
            "Open the next conversation of the list.",
            "acts.conversations.next",
        ),
        Action(
            "previous",
            "ctrl+pageup,alt+up,f8",
            "Previous conversation",
            "Open the conversation above in the list.",
            "acts.conversations.previous",
        ),
        Action(
            "list",
            "ctrl+s",
            "List",
            "Choose a conversation from the list, with a filter.",
            "conversations.pick",
            footer="list",
        ),
        Action(
            "search",
            "ctrl+r",
            "Search",
            "Search in all conversations; tag:NAME keeps to those with a tag.",
            "conversations.search",
            "WORDS",
            footer="search",
        ),
        Action(
            "rename",
            "f12",
            "Rename",
            "Give this conversation another title.",
            "acts.conversations.rename",
            "TITLE",
            asks=True,
        ),
        Action(
            "favourite",
            "",
            "Favourite",
            "Have this conversation stand first in the list, or no longer.",
            "acts.conversations.favourite",
            also="favorite",
        ),
        Action(
            "archive",
            "",
            "Archive",
            "Take this conversation out of the list, or back into it. A filter and a search find it all the same.",
            "acts.conversations.archive",
        ),
        Action(
            "tag",
            "",
            "Tags",
            "Put tags on this conversation, by which it is found; with a minus in front one is taken off.",
            "acts.conversations.tag",
            "NAME|-NAME",
            asks=True,
        ),
        Action(
            "delete",
            "f10",
            "Delete conversation",
            "Move this conversation to the trash; Undo brings it back.",
            "acts.conversations.delete",
        ),
        Action(
            "export",
            "f4",
            "Export",
            "Write this conversation, or all of them, to a file.",
            "acts.conversations.export",
            "FILE",
            asks=True,
            footer="export",
        ),
        Action("import", "", "Import", "Take in conversations of other programs.", "conversations.take_in", "PATH"),
    ),
    *_acts(
        "This conversation",
        Action("stop", "escape", "Stop", "Stop the answer, keep what came; first leave the messages.", "stop"),
        Action(
            "undo",
            "ctrl+underscore,ctrl+slash",
            "Undo",
            "Take back what was typed; else the last deletion, edit, new answer, fork or change of branch shown.",
            "acts.conversations.undo",
        ),
        Action("find", "ctrl+f", "Find", "Search in this conversation.", "findbar.open", "WORDS"),
        Action(
            "tree", "", "Tree of branches", "Show every branch of this conversation and go to one.", "messages.tree"
        ),
        Action(
            "keep",
            "",
            "Keep",
            "Keep this conversation's state on the disk, so that it is warm after every restart; a second "
            "time releases it. With an answer selected: the state up to there.",
            "acts.conversations.keep",
            "off",
        ),
        Action(
            "compact",
            "shift+f2",
            "Compact conversation",
            "Replace the older turns by a summary, on a new branch. Shows the cost first; a summary that is "
            "ready is put in place at once.",
            "acts.messages.compact",
            asks=True,
        ),
        Action(
            "parameters",
            "ctrl+o",
            "Parameters",
            "Change temperature, max tokens and the like; nothing is prefilled for it.",
            "options.parameters",
        ),
        Action(
            "tools",
            "",
            "Tools",
            "Choose what the model may call here: files, documents, web, python, none. Each call is asked for first; "
            "forget takes back what you allowed.",
            "acts.options.tools",
            "NAMES",
            asks=True,
        ),
        Action(
            "system",
            "",
            "System prompt",
            "Change the system prompt, or take one from the library. Shows the cost first.",
            "acts.options.system",
            "TEXT",
            asks=True,
        ),
        Action(
            "model",
            "ctrl+l",
            "Model and server",
            "Choose model and server.",
            "acts.options.model",
            "NAME",
            asks=True,
        ),
        Action(
            "thinking",
            "ctrl+t",
            "Thinking",
            "Turn thinking on or off, or set how much. Shows the cost first.",
            "acts.options.thinking",
            "on|off|auto|low|medium|high",
            asks=True,
        ),
        Action(
            "inspector",
            "f2",
            "Cache",
            "Show what the server had cached, turn by turn, and why it missed.",
            "inspect",
            slash="cache",
            footer="cache",
        ),
        Action(
            "doctor",
            "",
            "Doctor",
            "Examine the server: what it reuses, how fast it prefills, what to change.",
            "server.doctor",
        ),
    ),
    *_acts(
        "Memory",
        Action(
            "memory",
            "f5",
            "Memory",
            "Show memories, what is pending approval and the queue; or switch memory on or off in this conversation.",
            "acts.memory.run",
            "on|off|now",
            asks=True,
        ),
        Action(
            "remember",
            "",
            "Remember",
            "Remember a sentence in every conversation.",
            "acts.memory.remember",
            "TEXT",
            asks=True,
        ),
        Action(
            "forget",
            "",
            "Forget",
            "Delete the memory that has these words; if there are several, choose in the list. Undo brings it back.",
            "acts.memory.forget",
            "WORDS",
            asks=True,
        ),
    ),
    *_acts(
        "Documents",
        Action(
            "documents",
            "f6",
            "Documents",
            "Show the folders that are indexed, add one, and choose which are searched for this conversation.",
            "documents.run",
            "add PATH|remove NAME|off|ask NAME|always NAME|WORDS",
            waits=True,
        ),
    ),
    Action(
        "composer.messages",
        "tab",
        "Messages",
        "Go to the messages: each has keys to copy, edit, regenerate or continue it. In a mention it completes that.",
        group="Messages",
        footer="messages",
    ),
    *_keys(
        "transcript",
        "Messages",
        ("previous", "up,k", "Message above", "Select the message above.", "select(-1)"),
        ("next", "down,j", "Message below", "Select the message below.", "select(1)"),
        (
            "extend_up",
            "shift+up,K",
            "Select above too",
            "Select the message above as well, to copy them together.",
            "extend(-1)",
        ),
        ("extend_down", "shift+down,J", "Select below too", "Select the message below as well.", "extend(1)"),
        ("page_up", "pageup", "Page up", "Scroll up by a page.", "page(-1)"),
        ("page_down", "pagedown", "Page down", "Scroll down by a page.", "page(1)"),
        ("first", "home", "First message", "Go to the beginning.", "", "g"),
        ("last", "end", "Last message", "Go to the end and follow the answer.", "", "G"),
        (
            "find",
            "",
            "Find from here",
            "Search in this conversation; Enter comes back to the messages.",
            "screen.find_here",
            "slash",
        ),
        ("next_match", "", "Next match", "Go to the match below.", "screen.match(1)", "n"),
        ("previous_match", "", "Previous match", "Go to the match above.", "screen.match(-1)", "N"),
    ),
    *_acts(
        "Messages",
        Action(
            "transcript.edit",
            "e",
            "Edit message",
            "Change a question and ask again, on a new branch. Shows the cost first.",
            "messages.edit",
        ),
        Action(
            "transcript.regenerate",
            "r",
            "Another answer",
            "Regenerate the answer, on a new branch.",
            "acts.messages.regenerate",
            asks=True,
        ),
        Action(
            "transcript.continue",
            "c",
            "Continue answer",
            "Continue an answer that was cut; the cut one stays as a version.",
            "acts.messages.continue_answer",
            asks=True,
            gives_way=True,
        ),
        Action(
            "transcript.copy",
            "y",
            "Copy message",
            "Copy the messages marked on the screen, else the last one.",
            "messages.copy_message",
        ),
        Action("copy_answer", "", "Copy last answer", "Copy the last answer.", "messages.copy_answer"),
        Action(
            "copy_all",
            "",
            "Copy conversation",
            "Copy every message of this branch, each under the name of who wrote it.",
            "messages.copy_all",
        ),
        Action(
            "transcript.code",
            "1,2,3,4,5,6,7,8,9",
            "Copy code",
            "Copy the first to ninth code block of the message.",
            "messages.copy_code",
            "NUMBER",
        ),
        Action(
            "transcript.source",
            "o",
            "Sources",
            "Show what an answer cites, or the passages and files that a question was sent with, or the summary.",
            "documents.source",
            "NUMBER",
        ),
        Action(
            "transcript.branches", "b", "Branches here", "Show the other branches at this message.", "messages.tree"
        ),
    ),
    *_keys(
        "transcript",
        "Messages",
        (
            "sibling_previous",
            "left",
            "Previous version",
            "Go to the version of this message before this one.",
            "screen.sibling(-1)",
        ),
        (
            "sibling_next",
            "right",
            "Next version",
            "Go to the version of this message after this one.",
            "screen.sibling(1)",
        ),
    ),
    *_acts(
        "Messages",
        Action(
            "transcript.fork", "f", "Fork", "Continue from this message in a new conversation.", "acts.messages.fork"
        ),
        Action(
            "transcript.delete",
            "d",
            "Delete turn",
            "Drop this question and its answer, on a new branch.",
            "acts.messages.delete_turn",
            asks=True,
            slash="drop",
        ),
        Action(
            "transcript.fold",
            "enter,space",
            "Fold or unfold",
            "Fold or unfold reasoning and context of the message.",
            "transcript.action_fold",
            run="fold",
        ),
    ),
    *_keys(
        "composer",
        "Writing",
        ("enter", "enter", "Send", "Send the message; while an answer runs it waits behind that.", "key('enter')"),
        (
            "newline",
            "shift+enter,ctrl+j,alt+enter",
            "New line",
            "Begin a new line; \\ and Enter does it too.",
            "key('other')",
        ),
        ("send", "ctrl+enter", "Send", "Send the message, whatever Enter does.", "key('send')"),
        (
            "interrupt",
            "ctrl+c",
            "Copy, clear or stop",
            "Copy the selection, else clear the message, else stop the answer. Never quits.",
            "key('interrupt')",
        ),
        (
            "end",
            "ctrl+d",
            "Delete right, or quit",
            "Delete the character on the right; quit if there is no message.",
            "key('end')",
        ),
    ),
    Action(
        "memories",
        "shift+f5",
        "Message context",
        "Choose which memories and passages are sent with the message; twice: none. Accepts passages on offer.",
        "context.choose",
        group="Writing",
    ),
    *_acts(
        "Writing",
        Action(
            "attach",
            "shift+f6",
            "Attach file",
            "Attach a file to the message, as it is now; one that was attached before: only what has changed.",
            "context.attach",
            "PATH",
        ),
        Action(
            "queue",
            "shift+f7",
            "Queue",
            "Show the messages that wait for the answer before them: edit, drop or move them.",
            "queue.open",
        ),
        Action(
            "alternatives",
            "shift+f8",
            "Several answers",
            "Ask what is written, else the last question again, for several answers or of several models; "
            "choose the one that goes on. Shows the cost first.",
            "alternatives.ask",
            "NUMBER|MODEL MODEL",
        ),
        Action("editor", "ctrl+g", "Editor", "Write the message in your own editor.", "drafts.write_outside"),
    ),
    *_keys(
        "sidebar",
        "List",
        ("open", "enter", "Open", "Open the conversation under the cursor."),
    ),
    Action(
        "sidebar.menu",
        "m",
        "Menu",
        "Show what can be done with the conversation under the cursor.",
        "conversations.menu",
        group="List",
    ),
    Action(
        "sidebar.rename",
        "r",
        "Rename",
        "Give the conversation under the cursor another title.",
        "acts.conversations.rename",
        group="List",
        asks=True,
    ),
    Action(
        "sidebar.delete",
        "d,delete",
        "Delete",
        "Move the conversation under the cursor to the trash; Undo brings it back.",
        "acts.conversations.delete",
        group="List",
    ),
    *_acts(
        "General",
        Action("sidebar", "f3", "Sidebar", "Show or hide the list of conversations.", "toggle_sidebar"),
        Action(
            "panel",
            "",
            "Cache panel",
            "Show or hide what the server holds; it takes 150 columns.",
            "panel.toggle",
        ),
        Action("theme", "", "Theme", "Choose the colours.", "options.theme", "NAME"),
        Action(
            "jump",
            "ctrl+right_square_bracket",
            "Jump",
            "Show a letter on each code block (copies it), source, version mark, message and row of the list; "
            "type it to go there.",
            "jump.begin",
        ),
        Action("settings", "shift+f1", "Settings", "Look at every setting, and change it.", "settings.open", "WORDS"),
    ),
    Action(
        "palette",
        "ctrl+p",
        "Palette",
        "Find an action by its name; shows what it costs.",
        "palette",
        group="General",
        footer="palette",
    ),
    *_acts(
        "General",
        Action("help", "f1,ctrl+b", "Help", "Show every key and command.", "show_help", footer="help"),
        Action(
            "suspend", "ctrl+z", "Suspend", "Stop kvchat and go back to the shell; fg goes on.", "app.stop_for_shell"
        ),
        Action(
            "quit",
            "ctrl+q",
            "Quit",
            "Quit kvchat. A running answer is stopped and kept.",
            "app.action_quit",
            also="exit",
        ),
    ),
)

DIALOG_ACTIONS: tuple[Action, ...] = (
    *_keys(
        "dialog",
        "Dialogs",
        ("close", "escape", "Close", "Leave a dialog without an answer, or what was begun last in it."),
    ),
    *_keys(
        "rows",
        "Dialogs",
        ("up", "up,ctrl+up", "Up", "Go to the row above.", "move(-1)"),
        ("down", "down,ctrl+down", "Down", "Go to the row below.", "move(1)"),
        ("page_up", "pageup", "Page up", "Go up by a screenful of rows.", "page(-1)"),
        ("page_down", "pagedown", "Page down", "Go down by a screenful of rows.", "page(1)"),
        ("first", "home,ctrl+home", "First", "Go to the first row.", "move(-1000000000)"),
        ("last", "end,ctrl+end", "Last", "Go to the last row.", "move(1000000000)"),
        ("choose", "enter", "Choose", "Take the row under the cursor."),
    ),
    *_keys(
        "fields",
        "Dialogs",
        ("previous", "up", "Field above", "Go to the field above.", "app.focus_previous"),
        ("next", "down", "Field below", "Go to the field below.", "app.focus_next"),
        ("apply", "enter,ctrl+s", "Apply", "Take what is written in the fields."),
    ),
    *_keys(
        "choice",
        "Dialogs",
        ("previous", "left", "Word before", "Choose the word to the left.", "step(-1)"),
        ("next", "right,space", "Word after", "Choose the word to the right.", "step(1)"),
    ),
    *_keys(
        "manager",
        "In the memory and the documents",
        ("up", "k", "Up", "Go to the row above.", "move(-1)"),
        ("down", "j", "Down", "Go to the row below.", "move(1)"),
        ("search", "slash,ctrl+f", "Search", "Search in what is listed, or in the index of the documents."),
        ("add", "a", "Add", "Add a memory, or a folder or file to the documents."),
        ("next_page", "tab,right", "Next page", "Go to the next page: memories, queue, history.", "page_by(1)"),
        ("previous_page", "shift+tab,left", "Page before", "Go back to the page before.", "page_by(-1)"),
    ),
    *_keys(
        "memory",
        "In the memory",
        ("kind", "f", "Kind", "Show only memories of the next kind."),
        ("kind_back", "F", "Kind before", "Show only memories of the kind before."),
        ("here", "n", "Noted here", "Show only what was noted in the open conversation, or all again."),
        ("edit", "e", "Edit", "Change the text of a memory; this approves a proposal."),
        ("delete", "d,delete", "Delete", "Delete a memory, or discard a proposal. Undo brings it back."),
        ("accept", "y", "Approve", "Approve a proposal."),
        ("profile", "p", "To the profile", "Begin every new conversation with the memory."),
        ("source", "s", "Source", "Go to the message or conversation that the row came from."),
        ("editor", "E,ctrl+g", "Editor", "Open the memory's page in your own editor."),
        ("undo", "u", "Undo", "Undo the last change, or the one under the cursor of the history."),
        ("take_back", "U", "Take back", "Take back what kvchat noted by itself. It asks first."),
        ("retry", "r", "Do it now", "Run what is queued now, or retry what failed."),
        ("switch", "o", "On or off here", "Switch memory on or off in the open conversation."),
    ),
    *_keys(
        "entry",
        "In the memory",
        ("save", "enter", "Save", "Store the text that is written."),
        ("new_line", "ctrl+j,shift+enter,alt+enter", "New line", "Begin a new line in the text."),
    ),
    *_keys(
        "documents",
        "In the documents",
        ("remove", "x,delete", "Remove", "Throw away the index of a collection. It asks first; the files stay."),
        ("update", "r", "Look for changes", "Index what has changed in the files of a collection."),
        ("read_again", "R", "Read again", "Read every file of a collection again."),
        ("stop", "c", "Stop indexing", "End the indexing of a collection; what is done is kept."),
        ("report", "s", "Report", "Show what was skipped and why, and what the last indexing did."),
        ("cycle", "space", "This conversation", "Search a collection for this conversation: off, ask, always."),
        ("folder", "o", "Folder", "Open the folder of a collection, or copy its path."),
    ),
    *_keys(
        "add",
        "In the documents",
        ("complete", "tab", "Complete", "Take the folder under the cursor into the path."),
        ("other_field", "shift+tab", "Path or name", "Go to the name, or back to the path."),
    ),
    *_keys(
        "passages", "In the documents", ("scope", "tab", "Where to search", "Search in one collection, or everywhere.")
    ),
    *_keys(
        "source",
        "In a source",
        ("up", "k", "Up", "Go up a line.", "move(-1)"),
        ("down", "j", "Down", "Go down a line.", "move(1)"),
        ("page_down", "space", "Page down", "Go down a screenful.", "page(1)"),
        ("editor", "e,E,ctrl+g", "Editor", "Open the file at its line in your own editor."),
        ("pager", "p", "Pager", "Show the file, or the text of it, in the pager."),
        ("copy_place", "y", "Copy place", "Copy the path and the lines."),
        ("copy_text", "Y", "Copy text", "Copy the text as it was sent."),
    ),
    *_keys(
        "attach", "In other dialogs", ("complete", "tab", "Complete", "Take the file under the cursor into the path.")
    ),
    *_keys(
        "context",
        "In other dialogs",
        ("leave_out", "space,delete,backspace", "Leave out", "Leave what is shown out of the message, or put it back."),
        ("previous", "left", "One before", "Show the item before this one.", "step(-1)"),
        ("next", "right", "Next one", "Show the item after this one.", "step(1)"),
        ("agree", "y", "Send it", "Send a file from outside with the message."),
        ("done", "enter", "Close", "Close it; what was left out stays out.", "close"),
    ),
    *_keys(
        "tools",
        "In other dialogs",
        ("tick", "space", "Tick", "Tick a group of tools, or take the tick away; Enter uses those that are ticked."),
    ),
    *_keys(
        "branches",
        "In other dialogs",
        ("fork", "f", "Fork", "Continue from the message under the cursor in a new conversation."),
    ),
    *_keys(
        "alternatives",
        "In other dialogs",
        ("choose", "enter", "Choose", "Go on with this one of several answers; a digit takes the one of its number."),
        ("previous", "left,shift+tab", "Answer before", "Go to the answer before this one.", "step(-1)"),
        ("next", "right,tab", "Answer after", "Go to the answer after this one.", "step(1)"),
        ("up", "up,k", "Up", "Scroll up.", "scroll(-1)"),
        ("down", "down,j", "Down", "Scroll down.", "scroll(1)"),
        ("page_up", "pageup", "Page up", "Scroll up by a page.", "page(-1)"),
        ("page_down", "pagedown,space", "Page down", "Scroll down by a page.", "page(1)"),
    ),
    *_keys(
        "queue",
        "In other dialogs",
        ("edit", "e", "Edit", "Take the message back into the composer."),
        ("send", "s", "Send", "Send the message now, and the others after it."),
        ("drop", "d,delete", "Drop", "Take the message out of the queue for good."),
        ("earlier", "K,shift+up", "Earlier", "Send the message before the one above it.", "shift(-1)"),
        ("later", "J,shift+down", "Later", "Send the message after the one below it.", "shift(1)"),
    ),
    *_keys(
        "inspector",
        "In other dialogs",
        ("next_view", "tab,right,m", "Next view", "Go from turns to messages to totals and server.", "view(1)"),
        ("previous_view", "shift+tab,left", "View before", "Go back to the view before.", "view(-1)"),
        (
            "pin",
            "p",
            "Pin",
            "Keep what the server holds on screen, or take it away; it takes 150 columns.",
        ),
    ),
    *_keys(
        "findbar",
        "In other dialogs",
        ("above", "enter,up", "Match above", "Go to the match above.", "step(-1)"),
        ("below", "shift+enter,down", "Match below", "Go to the match below.", "step(1)"),
        ("close", "escape", "Close find", "Leave the search in the conversation."),
    ),
    *_keys(
        "settings",
        "In other dialogs",
        ("reset", "delete", "Default", "Take a setting out of the file, back to its default."),
    ),
    *_keys(
        "list_dialog",
        "In other dialogs",
        ("new", "ctrl+n", "New conversation", "Begin a new conversation from the list."),
        ("search", "ctrl+r", "Search", "Search the words of all conversations for what is written in the filter."),
        ("rename", "f12", "Rename", "Give the conversation under the cursor another title.", "pick('rename')"),
        ("delete", "delete", "Delete", "Move the conversation under the cursor to the trash.", "pick('delete')"),
        (
            "menu",
            "tab",
            "Menu",
            "Show what else can be done with the conversation under the cursor: favourite, "
            "keep, archive, tags, export.",
            "pick('menu')",
        ),
    ),
    *_keys(
        "search_dialog",
        "In other dialogs",
        ("rank", "ctrl+r", "Order", "Order what was found by how well it fits, or newest first."),
    ),
    *_keys(
        "prompt",
        "In other dialogs",
        ("apply", "ctrl+s", "Apply", "Take the text as the system prompt."),
        ("delete", "delete", "Delete", "Delete the saved prompt under the cursor."),
    ),
    *_keys(
        "report",
        "In other dialogs",
        ("agree", "enter,y", "Run", "Run the probes that cost something."),
        ("again", "r", "Again", "Have the doctor examine the server again."),
        ("up", "up", "Up", "Scroll up.", "scroll(-1)"),
        ("down", "down", "Down", "Scroll down.", "scroll(1)"),
        ("page_up", "pageup", "Page up", "Scroll up by ten lines.", "scroll(-10)"),
        ("page_down", "pagedown,space", "Page down", "Scroll down by ten lines.", "scroll(10)"),
        ("first", "home", "First", "Scroll to the top.", "scroll(-1000000)"),
        ("last", "end", "Last", "Scroll to the end.", "scroll(1000000)"),
    ),
)
"""What can be done in dialogs. The answers to a question have the letters that stand before them."""

BY_ID: Mapping[str, Action] = {action.id: action for action in (*ACTIONS, *DIALOG_ACTIONS)}
