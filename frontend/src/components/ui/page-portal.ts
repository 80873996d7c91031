import type { RefObject } from "react";

/**
 * Where popups go: inside the page's main landmark, so that a screen reader finds them in it; else the body. It is looked up
 * when one opens: what is rendered together with the landmark is rendered before that is there.
 */
export const popupContainer: RefObject<HTMLElement | null> = {
  get current() {
    return document.getElementById("main");
  },
};
