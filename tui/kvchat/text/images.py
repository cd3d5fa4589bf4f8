"""Images and the servers that do not take them, in words."""

from __future__ import annotations

from kvchat.sanitize import one_line
from kvchat.text.place import here


def no_images(model: str, sees: bool | None, *, earlier: bool) -> str:
    """Why messages with images are not sent to a model. `sees`: what its server says of it. `earlier`: the images are
    in messages before the one that is sent."""
    name = one_line(model.replace("\\", "/").rpartition("/")[2], 60) or "this model"
    if sees is None:
        return (f"Nothing was sent: the server does not say whether {name} can see images. If it can, set vision to "
                "\"yes\" in the server's settings.")
    choose = here("Choose a model that can (/model)", "Name a model that can (-m)")
    what = "this conversation has an image, and " if earlier else ""
    end = "start a new conversation" if earlier else here("remove the image", "leave the image out")
    return f"Nothing was sent: {what}{name} cannot see images. {choose}, or {end}."
