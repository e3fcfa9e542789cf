import { useLocation } from "wouter-preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { count } from "../format";

/** Rows keep their place while the pointer is on them; new ones gather behind a count. */
export function Calm<T>({
  rows,
  keyOf,
  children,
}: {
  rows: T[];
  keyOf: (row: T) => string;
  children: (rows: T[]) => preact.ComponentChildren;
}) {
  const [held, hold] = useState<T[]>();
  const known = new Set(held?.map(keyOf));
  const more = held ? rows.filter((r) => !known.has(keyOf(r))).length : 0;
  return (
    <div onMouseEnter={() => hold(rows)} onMouseLeave={() => hold(undefined)} style={{ position: "relative" }}>
      {more > 0 && (
        <button type="button" class="fresh" onClick={() => hold(rows)}>
          {count(more)} new
        </button>
      )}
      {children(held ?? rows)}
    </div>
  );
}

/** j and k walk through a list of links, enter opens. */
export function Selectable<T>({
  rows,
  href,
  children,
  kind = "wait",
}: {
  rows: T[];
  href: (row: T) => string;
  children: (row: T) => preact.ComponentChildren;
  kind?: string;
}) {
  const [on, show] = useState(-1);
  const place = useRef(-1); // a second key may come before the page is drawn again
  const [, go] = useLocation();
  useEffect(() => {
    const keys = (e: KeyboardEvent) => {
      if (
        e.defaultPrevented ||
        e.metaKey ||
        e.ctrlKey ||
        e.altKey ||
        (e.target as HTMLElement).closest?.("input,select,textarea,a,button,.drawer")
      )
        return;
      const row = rows[place.current];
      if (e.key === "j" || e.key === "k") {
        place.current = Math.max(0, Math.min(rows.length - 1, place.current + (e.key === "j" ? 1 : -1)));
        show(place.current);
      } else if (e.key === "Enter" && row) {
        e.preventDefault();
        go(href(row));
      }
    };
    document.addEventListener("keydown", keys);
    return () => document.removeEventListener("keydown", keys);
  });
  return (
    <ul class={`list ${kind}`}>
      {rows.map((r, i) => (
        <li
          key={href(r)}
          class={i === on ? "on" : ""}
          style={i === on ? { background: "var(--paper-2)", boxShadow: "inset 3px 0 var(--link)" } : {}}
        >
          {children(r)}
        </li>
      ))}
    </ul>
  );
}
