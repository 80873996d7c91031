/** Where popups go: inside the page's main landmark, so that a screen reader finds them in it; null means the body. */
export function popupContainer(): HTMLElement | null {
  return document.getElementById("main");
}
