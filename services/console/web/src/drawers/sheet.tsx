// The frame that every drawer has: a title, what stands at its end, and a button that closes it.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useQuery } from "../url";

export function Sheet({
  title,
  kind,
  end,
  children,
}: {
  title: string;
  kind?: string;
  end?: ComponentChildren;
  children: ComponentChildren;
}) {
  const [, change] = useQuery();
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    box.current?.focus();
    return () => before?.focus?.();
  }, []);
  return (
    <aside class="drawer" ref={box} tabIndex={-1} aria-label={`${kind ?? ""} ${title.slice(0, 80)}`}>
      <header>
        <h1>
          {kind && <span class="dim">{kind} </span>}
          <bdi>{title.length > 300 ? `${title.slice(0, 300)}…` : title}</bdi>
        </h1>
        {end}
        <button type="button" class="quiet" title="Close (esc)" onClick={() => change({ open: undefined })}>
          close
        </button>
      </header>
      {children}
    </aside>
  );
}
