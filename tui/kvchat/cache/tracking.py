"""The second door, for a client that keeps track of what it has sent: `kvchat.chat.cache`.

Beside the first door's names it needs what predictions are put down with (`Journal`, `SentPrompt` and what is evidence
of it), what is stored for the next run (`Note`), and what decides how a request is sent (`Restorable`, `WORTH`). Who
only sends prompts needs nothing of it.
"""

from __future__ import annotations

from kvchat.cache.causes.divergence import content_of as content_of
from kvchat.cache.causes.evidence import LastRead as LastRead
from kvchat.cache.causes.evidence import Sent as Sent
from kvchat.cache.causes.evidence import ServerIdentity as ServerIdentity
from kvchat.cache.holding import Holding as Holding
from kvchat.cache.holding import taken_by as taken_by
from kvchat.cache.journal import Journal as Journal
from kvchat.cache.journal import SentPrompt as SentPrompt
from kvchat.cache.llamacpp.cache_config import is_tested as is_tested
from kvchat.cache.llamacpp.cancelled import CancelledRequests as CancelledRequests
from kvchat.cache.llamacpp.hypotheses import TOLERANCE as TOLERANCE
from kvchat.cache.llamacpp.planner import DETOUR as DETOUR
from kvchat.cache.llamacpp.planner import WORTH as WORTH
from kvchat.cache.llamacpp.planner import Restorable as Restorable
from kvchat.cache.llamacpp.simulator import Simulator as Simulator
from kvchat.cache.llamacpp.slot_observer import Look as Look
from kvchat.cache.llamacpp.slot_state import State as State
from kvchat.cache.notes import Claim as Claim
from kvchat.cache.notes import Note as Note
from kvchat.cache.price import HeldOfBranch as HeldOfBranch
from kvchat.cache.price import price as price
from kvchat.cache.price import price_of_act as price_of_act
from kvchat.cache.template_text import TurnSeparator as TurnSeparator
from kvchat.cache.template_text import marker_in as marker_in
from kvchat.cache.template_text import repeated_marker_in as repeated_marker_in
