// The focus stays on the page: when what has it goes away, the nearest part of the page that is left gets it. Without
// this, who uses the keyboard would begin at the top of the page after each such step.

const REACHED = "a[href], button:not(:disabled), input, select, textarea, summary, [tabindex]:not([tabindex='-1'])";

export function keepFocus(): void {
  let had: Element | null = null;
  let way: Element[] = []; // from it up to the page
  document.addEventListener("focusin", (event) => {
    had = event.target as Element;
    way = [];
    for (let each = had.parentElement; each; each = each.parentElement) way.push(each);
  });
  // What gets it does not get the key, too, which Enter would press.
  document.addEventListener("keydown", (event) => { if (!(event.target as Element).isConnected) event.preventDefault(); });
  // A click beside all that takes the focus gives it up.
  document.addEventListener("pointerdown", () => { had = null; }, true);
  new MutationObserver(() => {
    if (had === null || had.isConnected || (document.activeElement ?? document.body) !== document.body) return;
    const next = leftOf(way);
    if (next === null) return;
    if (!next.matches(REACHED)) next.tabIndex = -1;
    next.focus();
  }).observe(document.body, { childList: true, subtree: true });
}

// Of a part of a view its first element, of a view the tab that is open, and of a page its heading.
function leftOf(way: Element[]): HTMLElement | null {
  const near = way.find((each) => each.isConnected);
  const view = near?.closest("main");
  if (!near || !view) return document.querySelector("main h1") ?? document.querySelector("main");
  if (near === view) return view.querySelector(".tabs > [aria-current]") ?? view.querySelector("h1") ?? (view as HTMLElement);
  return near.querySelector(REACHED) ?? (near as HTMLElement);
}
