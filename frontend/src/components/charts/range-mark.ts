import type uPlot from "uplot";

/**
 * The range that is being drawn with the pointer, in place of uPlot's own: a transform moves and stretches it, so that its
 * chart is not laid out again with each move.
 */
export function rangeMark(color: string): uPlot.Plugin {
  let mark: HTMLElement | undefined;
  const show = ({ select: { left, width } }: uPlot) => {
    if (!mark) return;
    mark.style.display = width > 0 ? "block" : "none";
    mark.style.transform = `translateX(${left}px) scaleX(${width})`;
  };
  const hide = () => {
    if (mark) mark.style.display = "none";
  };
  return {
    hooks: {
      init: (chart) => {
        mark = markIn(chart, color);
      },
      setCursor: show,
      setSelect: hide,
    },
  };
}

function markIn(chart: uPlot, color: string): HTMLElement {
  const own = chart.root.querySelector<HTMLElement>(".u-select");
  if (own) own.style.display = "none";
  const mark = document.createElement("div");
  mark.dataset.range = "";
  Object.assign(mark.style, {
    background: color,
    display: "none",
    inset: "0 auto 0 0",
    pointerEvents: "none",
    position: "absolute",
    transformOrigin: "0 0",
    width: "1px",
    willChange: "transform",
  });
  chart.over.append(mark);
  return mark;
}
