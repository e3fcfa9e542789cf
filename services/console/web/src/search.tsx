// Search anything by name.
import type { SearchHit } from "@bigfleet/api/v1alpha1/console";
import { useEffect, useRef, useState } from "preact/hooks";
import { useLocation } from "wouter-preact";
import { live } from "./api";
import { Name } from "./design/parts";
import { useAnswer, useSettled } from "./live";
import { link, open, useQuery } from "./url";

/** Where a hit leads: a drawer on the present page, or a page. */
function target(h: SearchHit): { open?: string; path?: string } {
  switch (h.kind) {
    case "machine":
    case "node":
      return { open: open.machine(h.target || h.name, h.shardId) };
    case "cluster":
      return { open: open.cluster(h.shardId, h.name) };
    case "shard":
      return { open: open.shard(h.name) };
    case "need":
      return { open: open.need(h.shardId, h.clusterId, h.target, "", "") };
    case "pod": {
      const [ns = "", name = ""] = h.name.split("/");
      return { open: open.pod(h.clusterId, ns, name) };
    }
    case "provider":
      return { path: link("/fleet/machines", { provider: h.name }) };
    default:
      return { path: link("/demand", { cluster: h.clusterId }) };
  }
}

export function Search() {
  const [text, setText] = useState("");
  const [on, setOn] = useState(0);
  const [focus, setFocus] = useState(false);
  const box = useRef<HTMLInputElement>(null);
  const [, go] = useLocation();
  const [, change] = useQuery();
  const query = useSettled(text.trim(), 80);
  const answer = useAnswer(query ? (signal) => live.search({ query, limit: 20 }, { signal }) : undefined, [query]);
  useEffect(() => {
    const slash = (e: KeyboardEvent) => {
      if (e.key === "/" && !(e.target as HTMLElement).closest?.("input,select,textarea")) {
        e.preventDefault();
        box.current?.focus();
        box.current?.select();
      }
    };
    document.addEventListener("keydown", slash);
    return () => document.removeEventListener("keydown", slash);
  }, []);
  useEffect(() => setOn(0), [query]);
  const hits = answer.value?.hits ?? [];
  const listed = focus && !!query; // the list is in the page
  const choose = (h: SearchHit | undefined) => {
    if (!h) return;
    const to = target(h);
    setText("");
    box.current?.blur();
    if (to.open) change({ open: to.open }, true);
    else if (to.path) go(to.path);
  };
  return (
    <div class="search">
      <input
        ref={box}
        type="search"
        placeholder="Search a machine, node, cluster, need, Pod, provider…  ( / )"
        aria-label="Search"
        role="combobox"
        aria-expanded={listed}
        aria-controls={listed ? "hits" : undefined}
        aria-activedescendant={listed && hits[on] ? `hit-${on}` : undefined}
        value={text}
        onFocus={() => setFocus(true)}
        onBlur={() => setTimeout(() => setFocus(false), 150)}
        onInput={(e) => setText(e.currentTarget.value.slice(0, 256))}
        onKeyDown={(e) => {
          if (e.key === "ArrowDown" || e.key === "ArrowUp") {
            e.preventDefault();
            setOn((i) => Math.max(0, Math.min(hits.length - 1, i + (e.key === "ArrowDown" ? 1 : -1))));
          } else if (e.key === "Enter" && query === text.trim()) choose(hits[on]);
          else if (e.key === "Escape") {
            setText("");
            box.current?.blur();
          }
        }}
      />
      {listed && (
        <ul class="hits" id="hits" role="listbox" aria-label="Found">
          {hits.map((h, i) => (
            <li
              key={`${h.kind} ${h.name} ${h.shardId}`}
              id={`hit-${i}`}
              role="option"
              aria-selected={i === on}
              onMouseDown={() => choose(h)}
            >
              <span class="dim">{h.kind}</span>
              <Name>{h.name}</Name>
              {h.about && (
                <span class="about" dir="auto">
                  {h.about.slice(0, 300)}
                </span>
              )}
            </li>
          ))}
          {!answer.loading && hits.length === 0 && (
            <li role="option" aria-selected="false">
              <span />
              <span class="dim">{answer.error || "Nothing has this in its name."}</span>
            </li>
          )}
          {(answer.value?.missing ?? []).map((m) => (
            <li key={m} role="option" aria-selected="false">
              <span class="held">not searched</span>
              <span class="dim">{m}</span>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
