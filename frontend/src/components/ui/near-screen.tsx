import { type ReactNode, useEffect, useRef, useState } from "react";

/** What is within this distance of the window is in the document. */
const MARGIN_PX = 800;

type OnNear = (near: boolean) => void;
const listeners = new WeakMap<Element, OnNear>();
/** One for all: a page may have hundreds of parts. */
let observer: IntersectionObserver | null = null;

function watch(node: Element, onNear: OnNear): () => void {
  observer ??= new IntersectionObserver(
    (entries) => {
      for (const entry of entries) listeners.get(entry.target)?.(entry.isIntersecting);
    },
    { rootMargin: `${MARGIN_PX}px 0px` },
  );
  const watching = observer;
  listeners.set(node, onNear);
  watching.observe(node);
  return () => {
    watching.unobserve(node);
    listeners.delete(node);
  };
}

interface NearScreenProps {
  /** Its height until it has been drawn once. */
  estimatePx: number;
  children: ReactNode;
}

/** Keeps its children in the document only while they are near the window, and their place where they are not. */
export function NearScreen({ estimatePx, children }: NearScreenProps) {
  const box = useRef<HTMLDivElement>(null);
  const [near, setNear] = useState(false);
  const [height, setHeight] = useState(estimatePx);
  useEffect(() => {
    const node = box.current;
    if (!node) return;
    return watch(node, (isNear) => {
      if (!isNear && node.firstElementChild) setHeight(node.offsetHeight);
      // What has the keyboard's focus stays: it would fall back to the top of the page.
      setNear(isNear || node.contains(document.activeElement));
    });
  }, []);
  return (
    <div ref={box} style={near ? undefined : { height }}>
      {near && children}
    </div>
  );
}
