"""The card of a model that ships, as far as a list of models shows it: its size and its score."""

import json
from pathlib import Path
from typing import Any


def read_card(run: str) -> dict[str, Any] | None:
    """{"bytes", "score": {"name", "bleu"}} of the folder of a run; None where it has no card or a damaged one."""
    try:
        card = json.loads((Path(run) / "card.json").read_text("utf-8"))
        first = card["scores"][0]
        return {"bytes": int(card["bytes"]), "score": {"name": first["name"], "bleu": float(first["small"]["bleu"])}}
    except (OSError, ValueError, LookupError, TypeError):
        return None
