"""The form that Prefect's UI makes of a flow's parameters: fields by the labels that lead to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import ElementHandle

from tests.orchestration.browser import Browser

# Labels have no link to their inputs in this UI; the boxes are nested as the tables are.
SHARED = """
  const property = '.schema-form-property';
  const label = each =>
    each.querySelector('.schema-form-property__label').textContent.trim().replace(/ \\(Optional\\)$/, '');
  const parent = each => each.parentElement.closest(property);
  const all = [...document.querySelectorAll(property)];
"""
# The field that a list of labels leads to, or null.
FIND = f"""names => {{{SHARED}
  let at = null;
  for (const name of names) {{
    at = all.find(each => parent(each) === at && label(each) === name);
    if (!at) return null;
  }}
  return at;
}}"""
# The labels that lead to each field, boxes too, and its description.
FIELDS = f"""() => {{{SHARED}
  return all.map(each => {{
    const names = [];
    for (let at = each; at; at = parent(at)) names.unshift(label(at));
    const text = each.querySelector(':scope > .p-label__header .schema-form-property__description');
    return [names, text ? text.textContent.trim() : ''];
  }});
}}"""


@dataclass(frozen=True)
class Answer:
    """What the server said to a form: its status, and the flow run that it made, if it did."""

    status: int
    flow_run: str
    parameters: dict[str, Any]


class Form:
    """The form of a deployment, open in a browser."""

    def __init__(self, browser: Browser, deployment: str) -> None:
        self._browser = browser
        browser.open(f"/deployments/deployment/{deployment}/run", "Parameters", "Submit")
        browser.page.locator(".schema-form-property").first.wait_for()

    def fields(self) -> dict[tuple[str, ...], str]:
        """The description of each field, by the labels that lead to it."""
        return {tuple(names): text for names, text in self._browser.page.evaluate(FIELDS)}

    def value(self, *labels: str) -> str:
        """What stands in a field."""
        return self._control(labels).input_value()

    def fill(self, value: str, *labels: str) -> None:
        """Write into a field as a user does."""
        control = self._control(labels)
        control.scroll_into_view_if_needed()
        control.fill(value)

    def switch(self, *labels: str) -> None:
        """Flip a field that is true or false."""
        toggle = self._field(labels).query_selector("[role=switch]")
        assert toggle, f"{' > '.join(labels)} is no switch"
        toggle.click()

    def _control(self, labels: Sequence[str]) -> ElementHandle:
        control = self._field(labels).query_selector("input, textarea")
        assert control, f"{' > '.join(labels)} holds no text"
        return control

    def _field(self, labels: Sequence[str]) -> ElementHandle:
        field = self._browser.page.evaluate_handle(FIND, list(labels)).as_element()
        assert field, f"the form has no field {' > '.join(labels)}"
        return field

    def submit(self) -> Answer:
        """Press the button. What the server refuses is no complaint: whoever asked looks at the answer."""
        page = self._browser.page
        with page.expect_response(lambda answer: answer.url.endswith("/create_flow_run")) as expected:
            self._browser.click("Submit")
        answer = expected.value
        told = answer.json()
        if not answer.ok:
            self._browser.complaints.pop()
            return Answer(answer.status, "", {})
        return Answer(answer.status, told["id"], told["parameters"])
