"""Generate the part `settings` of the chart's schema: `python -m tests.deploy.helm_schema` writes it.

The values are text, as the environment has them, so bounds of numbers are said by patterns. Helm's patterns are Go's:
they have no looking ahead.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from service.settings import ACKS, LEARNERS, PREFIX, WEBHOOKS, Settings
from tests.deploy.helm import CHART

__all__ = ["CHART_SETTINGS", "PATH", "at_least", "at_most", "of_settings", "written"]

PATH = CHART / "values.schema.json"
# What the chart sets itself. The schema lets them through to its templates, which refuse them and say why.
CHART_SETTINGS = ("STORE", "HOST", "PORT", "KEYS", "INSECURE", "TLS_CERTIFICATE", "TLS_KEY", "ADVERTISE")
_ORIGIN = r"[a-z][a-z0-9+.-]*://[A-Za-z0-9._:\[\]-]+/?"
_TEXT = {  # what validators check, and the model's schema does not say
    "acks": ACKS,
    "webhook_alerts": LEARNERS,
    "store_prefix": PREFIX,
    "webhook": WEBHOOKS,
    "cors_origins": f"^({_ORIGIN}(, ?{_ORIGIN})*)?$",
}


def of_settings() -> dict[str, Any]:
    """Return the schema of `settings`: every setting that the chart allows there, and no other."""
    fields = Settings.model_json_schema()["properties"]
    settable = {
        name.upper(): _value(name, field) for name, field in fields.items() if name.upper() not in CHART_SETTINGS
    }
    reserved = {f"^({'|'.join(CHART_SETTINGS)})$": {}}
    return {"type": "object", "additionalProperties": False, "properties": settable, "patternProperties": reserved}


def written() -> str:
    """Return the full schema with the schema of `settings`, as the file should be."""
    schema = json.loads(PATH.read_text())
    schema["properties"]["settings"] = of_settings()
    return json.dumps(schema, indent=2) + "\n"


def at_least(low: int) -> str:
    """Return a pattern, without anchors, for whole numbers of at least `low`."""
    digits = str(low)
    longer = f"[1-9][0-9]{{{len(digits)},}}"
    above = [
        f"{digits[:i]}[{int(digit) + (i < len(digits) - 1)}-9]{_more(digits, i)}"
        for i, digit in enumerate(digits)
        if digit != "9" or i == len(digits) - 1
    ]
    return f"({'|'.join([*above, longer])})"


def at_most(high: int) -> str:
    """Return a pattern, without anchors, for whole numbers of at most `high`, which is 10 or more."""
    digits = str(high)
    shorter = ["0", f"[1-9][0-9]{{0,{len(digits) - 2}}}"]
    below = [
        f"{digits[:i]}[{int(i == 0)}-{int(digit) - (i < len(digits) - 1)}]{_more(digits, i)}"
        for i, digit in enumerate(digits)
        if int(digit) - (i < len(digits) - 1) >= int(i == 0)
    ]
    return f"({'|'.join([*shorter, *below])})"


def _more(digits: str, i: int) -> str:
    """Any digits in the place of those behind the one at `i`."""
    behind = len(digits) - 1 - i
    return f"[0-9]{{{behind}}}" if behind else ""


def _value(name: str, field: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the text of a setting, from the model of its value."""
    kind = field.get("type", "string")  # a field without a type may be null
    if kind == "boolean":
        return {"enum": ["true", "false"]}
    if "enum" in field:
        return {"enum": field["enum"]}
    if kind == "string":
        return {"type": "string", **({"pattern": _TEXT[name]} if name in _TEXT else {})}
    fraction = r"(\.[0-9]+)?" if kind == "number" else ""
    if "exclusiveMinimum" in field:
        assert field["exclusiveMinimum"] == 0, name
        return {"type": "string", "pattern": rf"^({at_least(1)}{fraction}|0\.[0-9]*[1-9][0-9]*)$"}
    patterns = [f"^{at_least(int(field['minimum']))}{fraction}$"]
    if "maximum" in field:
        assert kind == "integer", name
        patterns.append(f"^{at_most(field['maximum'])}$")
    schema = {"allOf": [{"pattern": pattern} for pattern in patterns]}
    return {"type": "string", **({"pattern": patterns[0]} if len(patterns) == 1 else schema)}


def main(path: Path) -> None:
    """Write it."""
    path.write_text(written())


if __name__ == "__main__":
    main(PATH)
