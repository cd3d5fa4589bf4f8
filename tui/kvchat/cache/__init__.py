"""What a server's prompt cache holds, as the client knows it. Pure: no I/O.

This is the door: nothing else imports the modules behind it. Each is loaded when a name of it is first used. A second
one, `tracking`, is for who notes what was sent, and stores it for the next run.

In `llamacpp`: a simulator of its slots and how to use them best. In `causes`: why a turn was prefilled again. `price`:
what an act would prefill.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.door import door

if TYPE_CHECKING:
    from kvchat.cache.cache import NOWHERE as NOWHERE
    from kvchat.cache.cache import Cache as Cache
    from kvchat.cache.causes.cause import Divergence as Divergence
    from kvchat.cache.causes.cause import Finding as Finding
    from kvchat.cache.causes.cause import Reason as Reason
    from kvchat.cache.causes.cause import Remedy as Remedy
    from kvchat.cache.causes.cut import dropped_text as dropped_text
    from kvchat.cache.causes.evidence import Change as Change
    from kvchat.cache.causes.evidence import Evidence as Evidence
    from kvchat.cache.causes.explain import finding_of as finding_of
    from kvchat.cache.causes.remedies import ENGINE_FLAGS as ENGINE_FLAGS
    from kvchat.cache.causes.remedies import Flags as Flags
    from kvchat.cache.causes.remedies import RemedyChange as RemedyChange
    from kvchat.cache.causes.remedies import RemedyWay as RemedyWay
    from kvchat.cache.llamacpp.cache_config import Rewind as Rewind
    from kvchat.cache.llamacpp.cache_config import Shape as Shape
    from kvchat.cache.llamacpp.checkpoints import Memory as Memory
    from kvchat.cache.llamacpp.planner import Plan as Plan
    from kvchat.cache.llamacpp.planner import PlannedWay as PlannedWay
    from kvchat.cache.llamacpp.planner import Way as Way
    from kvchat.cache.llamacpp.prediction import Prediction as Prediction
    from kvchat.cache.llamacpp.server_state import ServerState as ServerState
    from kvchat.cache.llamacpp.server_state import SlotCount as SlotCount
    from kvchat.cache.llamacpp.slot_state import Held as Held
    from kvchat.cache.llamacpp.state_probe import StateProbe as StateProbe
    from kvchat.cache.llamacpp.trust import Trust as Trust
    from kvchat.cache.price import Act as Act
    from kvchat.cache.price import Alternative as Alternative
    from kvchat.cache.price import CheaperWay as CheaperWay
    from kvchat.cache.price import Price as Price
    from kvchat.cache.tokens import Tokens as Tokens

NAMES = {
    "cache": ("NOWHERE", "Cache"),
    "causes.cause": ("Divergence", "Finding", "Reason", "Remedy"),
    "causes.cut": ("dropped_text",),
    "causes.evidence": ("Change", "Evidence"),
    "causes.explain": ("finding_of",),
    "causes.remedies": ("ENGINE_FLAGS", "Flags", "RemedyChange", "RemedyWay"),
    "llamacpp.cache_config": ("Rewind", "Shape"),
    "llamacpp.checkpoints": ("Memory",),
    "llamacpp.planner": ("Plan", "PlannedWay", "Way"),
    "llamacpp.prediction": ("Prediction",),
    "llamacpp.server_state": ("ServerState", "SlotCount"),
    "llamacpp.slot_state": ("Held",),
    "llamacpp.state_probe": ("StateProbe",),
    "llamacpp.trust": ("Trust",),
    "price": ("Act", "Alternative", "CheaperWay", "Price"),
    "tokens": ("Tokens",),
}
"""What others may use, by the module that has it."""

__getattr__, __dir__ = door(__name__, NAMES)
