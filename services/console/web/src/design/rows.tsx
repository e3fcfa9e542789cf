// A list of any length: only the rows in view are in the page.
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import type { ComponentChildren } from "preact";
import { useEffect, useReducer, useRef, useState } from "preact/hooks";

const height = 28;

export function Rows({
  count,
  head,
  row,
  label,
  kind,
  onOpen,
  onRange,
  onOver,
  cut,
  busy,
}: {
  count: number;
  head: ComponentChildren;
  row: (i: number) => ComponentChildren;
  label: string;
  kind: string;
  onOpen: (i: number) => void;
  onRange?: (first: number, last: number) => void;
  onOver?: (on: boolean) => void;
  cut?: number | undefined;
  busy?: boolean;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [, draw] = useReducer((n: number) => n + 1, 0);
  const [on, setOn] = useState(-1);
  const place = useRef(-1); // a second key may come before the page is drawn again
  const put = (i: number) => {
    place.current = i;
    setOn(i);
  };
  const virtual = useRef<Virtualizer<HTMLDivElement, Element>>();
  const options = {
    count,
    getScrollElement: () => box.current,
    estimateSize: () => height,
    overscan: 3,
    paddingStart: height,
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    onChange: () => draw(0),
  };
  virtual.current ??= new Virtualizer(options);
  virtual.current.setOptions(options);
  useEffect(() => virtual.current?._didMount(), []);
  useEffect(() => virtual.current?._willUpdate());
  const items = virtual.current.getVirtualItems();
  // Rows that leave the window are drawn again for those that come: a scroll through half a million makes few elements. Within a
  // window each row keeps its own, and with it the focus.
  const slots = useRef(0);
  if (items.length > slots.current) slots.current = 32 * Math.ceil(items.length / 32);
  const first = items[0]?.index ?? 0;
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => onRange?.(first, last), [first, last, count]);
  useEffect(() => {
    const keys = (e: KeyboardEvent) => {
      if (
        e.defaultPrevented ||
        e.metaKey ||
        e.ctrlKey ||
        e.altKey ||
        (e.target instanceof HTMLElement && e.target.closest("input,select,textarea,.drawer,.pop"))
      )
        return;
      if (e.key === "j" || e.key === "k") {
        put(Math.min(count - 1, Math.max(0, place.current + (e.key === "j" ? 1 : -1))));
        virtual.current?.scrollToIndex(place.current);
      } else if (
        e.key === "Enter" &&
        place.current >= 0 &&
        place.current < count &&
        !(e.target instanceof HTMLElement && e.target.closest("a,button"))
      ) {
        e.preventDefault();
        onOpen(place.current);
      }
    };
    document.addEventListener("keydown", keys);
    return () => document.removeEventListener("keydown", keys);
  });
  return (
    <div
      class={`grid ${kind}`}
      ref={box}
      role="table"
      aria-label={label}
      aria-rowcount={count + 1}
      aria-busy={busy || undefined}
      tabIndex={0}
      onMouseEnter={() => onOver?.(true)}
      onMouseLeave={() => onOver?.(false)}
    >
      <div class="h" role="row">
        {head}
      </div>
      <div role="rowgroup" style={{ height: `${virtual.current.getTotalSize() - height}px` }}>
        {items.map((it) => (
          <div
            key={it.index % slots.current}
            class={`r ${on === it.index ? "on" : ""} ${cut === it.index ? "cut" : ""}`}
            role="row"
            aria-rowindex={it.index + 2}
            style={{ transform: `translateY(${it.start}px)`, top: "0" }}
            onClick={(e) => {
              put(it.index);
              if (!(e.target as HTMLElement).closest("a")) onOpen(it.index);
            }}
          >
            {row(it.index)}
          </div>
        ))}
      </div>
    </div>
  );
}
export const Cell = ({ children, num, wide }: { children: ComponentChildren; num?: boolean; wide?: boolean }) => (
  <span role="cell" class={`${num ? "num" : ""} ${wide ? "wide" : ""}`}>
    {children}
  </span>
);
export const Head = ({ children, num, wide }: { children: ComponentChildren; num?: boolean; wide?: boolean }) => (
  <span role="columnheader" class={`${num ? "num" : ""} ${wide ? "wide" : ""}`}>
    {children}
  </span>
);
