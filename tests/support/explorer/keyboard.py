"""A keyboard for tests of the page: what has the focus is found by its role and its name, as those do who hear it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Locator, Page

MOST = 150  # elements that a page may have in its tab order
DEEP = """() => {
  let at = document.activeElement;
  while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
  return at;
}"""
HAS = f"wanted => {{ const at = ({DEEP})(); return [at === wanted, wanted.isConnected, at?.outerHTML ?? '']; }}"
PROBLEM = f"""() => {{
  const at = ({DEEP})();
  if (!at || at === document.body) return "no element has the focus";
  const named = at.outerHTML.slice(0, 120);
  const box = at.getBoundingClientRect();
  const [left, top] = [Math.max(0, box.left), Math.max(0, box.top)];
  const [right, bottom] = [Math.min(innerWidth, box.right), Math.min(innerHeight, box.bottom)];
  if (right <= left || bottom <= top) return `out of sight: ${{named}}`;
  const near = at.getRootNode().elementFromPoint((left + right) / 2, (top + bottom) / 2);
  if (!near || !(at.contains(near) || near.contains(at))) return `behind ${{near?.outerHTML.slice(0, 99)}}: ${{named}}`;
  let each = at;
  for (let up = 0; each && up < 3; up += 1) {{
    const look = getComputedStyle(each);
    if (look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 1) return "";
    each = each.parentElement;
  }}
  return `not marked: ${{named}}`;
}}"""
"""Why the focus cannot be seen; empty where it can. The mark of an editor is around its frame."""

SEEN = f"""async () => {{
  for (let frame = 0; frame < 30 && ({PROBLEM})(); frame += 1) await new Promise(done => requestAnimationFrame(done));
  return ({PROBLEM})();
}}"""
"""PROBLEM after some frames at most, because an editor is marked a moment after it has the focus."""


@dataclass(frozen=True)
class Keyboard:
    """Keys that are pressed on a page, and nothing else. Each step begins by a look at where the focus is."""

    page: Page

    def to(self, role: Any, name: str, within: Page | Locator | None = None, *, back: bool = False) -> None:
        """Press Tab, or Shift+Tab to go ``back``, until the element of this role and name has the focus."""
        self.to_this((within or self.page).get_by_role(role, name=name, exact=True), back=back)

    def to_this(self, element: Locator, *, back: bool = False) -> None:
        """Press Tab, or Shift+Tab, until this element has the focus; it has to be the only one of its locator."""
        wanted = element.element_handle()
        passed: list[str] = []
        while len(passed) < MOST:
            self.page.keyboard.press("Shift+Tab" if back else "Tab")
            has, is_there, text = wanted.evaluate(HAS)
            if has:
                self.is_seen()
                return
            if not is_there:  # an answer came, and another element took its place
                wanted = element.element_handle()
            passed.append(text[:60])
        raise AssertionError(f"Tab does not reach {element}, but {list(dict.fromkeys(passed))}")

    def press(self, *keys: str) -> None:
        """Press keys, the first of them where the focus is seen."""
        self.is_seen()
        for key in keys:
            self.page.keyboard.press(key)

    def write(self, text: str, *keys: str) -> None:
        """Write a text instead of what is in the field that has the focus, and press keys."""
        self.press("Control+a", "Delete")
        self.page.keyboard.type(text)
        for key in keys:
            self.page.keyboard.press(key)

    def choose(self, text: str) -> None:
        """Choose an option of the list that has the focus, by its arrow keys."""
        self.press("Home")
        for _ in range(MOST):
            chosen = self.page.evaluate("document.activeElement.selectedOptions?.[0].label")
            if chosen == text:
                return
            self.page.keyboard.press("ArrowDown")
        raise AssertionError(f"no option {text!r}; the last one is {chosen!r}")

    def is_seen(self) -> None:
        """Fail if the focus was lost, or if it cannot be seen where it is."""
        problem = self.page.evaluate(SEEN)
        if problem:
            raise AssertionError(problem)

    def open(self, role: Any, name: str, within: Page | Locator | None = None, *, key: str = "Enter") -> None:
        """Go to an element and press Enter."""
        self.to(role, name, within)
        self.page.keyboard.press(key)


@dataclass(frozen=True)
class TabOrder:
    """Return the faults of the order in which Tab goes through a page."""

    not_reached: list[str]
    upwards: list[tuple[str, str]]  # an element, and the one before it that lies below it


EACH = f"""() => {{
  const at = ({DEEP})();
  if (at === document.body) return null;
  window.passed = [...(window.passed ?? []), at];
  const box = at.getBoundingClientRect();
  return [at.outerHTML.slice(0, 80), box.top + scrollY, box.bottom + scrollY, box.right];
}}"""
LEFT_OUT = """() => [...document.querySelectorAll("button, input, select, textarea, summary, a[href], [tabindex='0']")]
  .filter(each => !window.passed.includes(each) && each.checkVisibility() && !each.disabled)
  .map(each => each.outerHTML.slice(0, 80))"""


def tab_order(page: Page) -> TabOrder:
    """Press Tab from the top of a page to its end."""
    keys = Keyboard(page)
    upwards: list[tuple[str, str]] = []
    last: tuple[str, float, float, float] | None = None
    for _ in range(MOST):
        page.keyboard.press("Tab")
        found = page.evaluate(EACH)
        if found is None:
            break
        keys.is_seen()
        if last is not None and found[2] <= last[1] and found[3] <= last[3]:
            upwards.append((found[0], last[0]))
        last = found
    else:
        raise AssertionError(f"Tab does not come to the end of the page; it is at {last}")
    return TabOrder(page.evaluate(LEFT_OUT), upwards)
