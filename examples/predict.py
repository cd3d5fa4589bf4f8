"""Says of each request what llama-server will take from its prompt cache, what it took, and why that was less.

    python examples/predict.py http://127.0.0.1:8080

A line `NAME text` goes on with the conversation NAME. Of kvchat it uses kvchat.cache alone.
"""

import json
import sys
from collections import defaultdict
from typing import Any
from urllib.request import Request, urlopen

from kvchat.cache import Cache, SlotCount, Tokens


class Client:
    def __init__(self, url: str) -> None:
        self.url = url
        props = self.ask("/props")
        window = props["default_generation_settings"]["n_ctx"]
        self.cache = Cache(props["total_slots"], window, props["build_info"])
        self.ids: defaultdict[str, list[int]] = defaultdict(list)

    def ask(self, path: str, **body: object) -> Any:
        data = json.dumps(body).encode() if body else None
        with urlopen(Request(self.url + path, data, {"Content-Type": "application/json"})) as answer:
            return json.load(answer)

    def look(self, *ended: int) -> None:
        slots = self.ask("/slots")
        counts = [SlotCount(s.get("n_prompt_tokens") or 0, s.get("id_task"), s["is_processing"]) for s in slots]
        self.cache.left(counts, *ended)

    def say(self, name: str, ids: list[int], count: int = 24) -> str:
        """Sends `ids` behind what was said in a conversation; at most `count` tokens come back."""
        self.look()
        self.ids[name] += ids
        prompt = Tokens(self.ids[name])
        way = self.cache.before(prompt, name)
        said = self.cache.sent(prompt, name, slot=way.slot)
        body = {"prompt": list(prompt), "n_predict": count, "temperature": 0, "return_tokens": True}
        answer = self.ask("/completion", **body, **({} if way.slot is None else {"id_slot": way.slot}))
        took = self.cache.heard(answer["timings"]["cache_n"])
        self.ids[name] += answer["tokens"]
        sampled = Tokens(answer["tokens"])
        self.cache.ended(sampled + Tokens.unknown(answer["timings"]["predicted_n"] - len(sampled)))
        self.look(said.slot)
        why = self.cache.explain()
        line = f"predicted {said.cached}, cached {took.cached_tokens}, new {took.new_tokens}"
        return f"{line}, wasted {took.wasted_tokens}" + (f": {why.cause} ({why.evidence.kind})" if why else "")


if __name__ == "__main__":
    client = Client(sys.argv[1]) if len(sys.argv) == 2 else sys.exit(__doc__)
    for line in sys.stdin:
        name, _, text = line.strip().partition(" ")
        ids = client.ask("/tokenize", content=f"\nUser: {text}\nAssistant:")["tokens"]
        print(f"{name}: {client.say(name, ids)}", flush=True)
