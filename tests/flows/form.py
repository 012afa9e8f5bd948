"""What Prefect's form submits, as observed in a browser: every property with its value or else its default, an object
without properties as the JSON that its editor holds, null for an optional property that is empty."""

import json
from typing import Any


def submitted(schema: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The parameters that the form of `schema`, prefilled with those of a deployment, would create a run with."""

    def resolved(entry: dict[str, Any]) -> dict[str, Any]:
        reference = entry.get("$ref")
        return {**schema["definitions"][reference.rpartition("/")[2]], **entry} if reference else entry

    def filled(entry: dict[str, Any], value: Any) -> Any:
        entry = resolved(entry)
        if entry.get("type") == "object" and "properties" in entry:
            return table(entry, value or {})
        if entry.get("type") == "object":
            return as_json(value)
        if entry.get("type") == "array":
            return [filled(entry["items"], each) for each in value]
        return value

    def table(entry: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
        unknown = value.keys() - entry["properties"].keys()
        assert not unknown, f"the form has no place for {unknown}"
        return {
            name: filled(each, value.get(name, resolved(each).get("default")))
            for name, each in entry["properties"].items()
            if name in value or "default" in each
        }

    return hydrated(table(schema, given))


def as_json(value: Any) -> dict[str, Any]:
    return {"__prefect_kind": "json", "value": json.dumps(value, indent=2)}


def hydrated(parameters: dict[str, Any]) -> dict[str, Any]:
    """What the server makes of them."""
    from prefect.utilities.schema_tools.hydration import HydrationContext, hydrate

    return hydrate(parameters, HydrationContext(raise_on_error=True))
