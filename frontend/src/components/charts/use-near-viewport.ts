import { type RefObject, useEffect, useState } from "react";

/** Whether the element is, or has been, within a screen of being visible: charts are only built then. */
export function useNearViewport(element: RefObject<HTMLElement | null>): boolean {
  const [near, setNear] = useState(false);
  useEffect(() => {
    const node = element.current;
    if (!node || near) return;
    const observer = new IntersectionObserver(
      (entries) => entries.some((entry) => entry.isIntersecting) && setNear(true),
      {
        rootMargin: "100% 0px",
      },
    );
    observer.observe(node);
    return () => observer.disconnect();
  }, [element, near]);
  return near;
}
