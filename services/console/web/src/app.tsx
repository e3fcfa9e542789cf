// The shell: search, places, the moment, the drawer, and how fresh everything is.
import type { WatchOverviewResponse } from "@bigfleet/api/v1alpha1/console";
import { useEffect, useRef, useState } from "preact/hooks";
import { Link, Route, Switch, useLocation } from "wouter-preact";
import { live } from "./api";
import { Drawer } from "./drawers/drawer";
import { Fleet } from "./fleet";
import { span } from "./format";
import { Help } from "./help";
import { type Flow, useAnswer, useFlow, useNow } from "./live";
import { Demand } from "./places/demand";
import { FleetPlace } from "./places/fleet";
import { History } from "./places/history";
import { Money } from "./places/money";
import { Now } from "./places/now";
import { System } from "./places/system";
import { Rights } from "./rights";
import { Search } from "./search";
import { link, useQuery } from "./url";

const places: [string, string, string][] = [
  ["/", "Now", "n"],
  ["/demand", "Demand", "d"],
  ["/fleet", "Fleet", "f"],
  ["/money", "Money", "m"],
  ["/history", "History", "h"],
  ["/system", "System", "s"],
];

export function App() {
  const flow = useFlow<WatchOverviewResponse, WatchOverviewResponse | undefined>(
    () => undefined,
    (signal) => live.watchOverview({}, { signal }),
    (_, m) => m,
    [],
  ) as Flow<WatchOverviewResponse>;
  const rights = useAnswer((signal) => live.getSources({}, { signal }), [], 60_000);
  const [help, setHelp] = useState(false);
  useKeys(() => setHelp((h) => !h));
  const [path] = useLocation();
  const here = places.find(([p]) => (p === "/" ? path === "/" : path.startsWith(p)));
  useEffect(() => {
    document.title = `${here?.[1] ?? "Not found"} · BigFleet`;
  }, [path]);
  return (
    <Rights.Provider value={rights.value}>
      <Fleet.Provider value={flow}>
        <a class="skip" href="#main">
          Skip to the page
        </a>
        <div class="shell">
          <header class="top">
            <Link href={link("/")} class="brand">
              BigFleet
            </Link>
            <Search />
            <div class="end">
              <Freshness flow={flow} />
              <Theme />
              <button type="button" class="quiet" title="Keys" onClick={() => setHelp(true)}>
                ?
              </button>
            </div>
          </header>
          <nav class="nav" aria-label="Places">
            {places.map(([p, name, k]) => (
              <Link key={p} href={link(p)} class={name === "System" ? "apart" : ""} aria-current={here?.[0] === p ? "page" : undefined}>
                {name}
                <kbd>g {k}</kbd>
              </Link>
            ))}
          </nav>
          <main class="main" id="main" tabIndex={-1}>
            <Moment />
            <Switch>
              <Route path="/">
                <Now />
              </Route>
              <Route path="/demand">
                <Demand />
              </Route>
              <Route path="/fleet/:tab?">{(p) => <FleetPlace tab={p.tab ?? "map"} />}</Route>
              <Route path="/money/:tab?">{(p) => <Money tab={p.tab ?? "cost"} />}</Route>
              <Route path="/history/:tab?">{(p) => <History tab={p.tab ?? "records"} />}</Route>
              <Route path="/system/:tab?">{(p) => <System tab={p.tab ?? "shards"} />}</Route>
              <Route>
                <div class="page">
                  <h1>There is no such page.</h1>
                  <p>
                    <Link href="/">Now</Link> says whether anything is wrong; <kbd>/</kbd> searches.
                  </p>
                </div>
              </Route>
            </Switch>
          </main>
          <Drawer />
        </div>
        {help && <Help close={() => setHelp(false)} />}
      </Fleet.Provider>
    </Rights.Provider>
  );
}

/** How fresh the sources are: live, old with its age, or lost and being mended. */
function Freshness({ flow }: { flow: Flow<WatchOverviewResponse> }) {
  const now = useNow();
  if (flow.lost)
    return (
      <span class="mark short" role="status">
        <span aria-hidden="true">▲</span>Lost, connecting again{flow.at ? ` · ${span(now - flow.at)} old` : ""}
      </span>
    );
  if (!flow.value)
    return (
      <span class="mark dim" role="status">
        Connecting…
      </span>
    );
  const old = flow.value.sources.filter((s) => s.configured && (s.error || now - Number(s.lastDataAtUnixNanos / 1_000_000n) > 5000));
  if (now - flow.at > 8000)
    return (
      <span class="mark held" role="status">
        <span aria-hidden="true">◇</span>
        {span(now - flow.at)} old
      </span>
    );
  const words = old.map(
    (s) =>
      `${s.source.replace("shard/", "")} ${s.lastDataAtUnixNanos ? `${span(now - Number(s.lastDataAtUnixNanos / 1_000_000n))} old` : "not heard yet"}`,
  );
  if (flow.value.fleet?.rebuilding) words.unshift("coordinator rebuilding");
  if (words.length === 0)
    return (
      <span class="mark met" role="status">
        <span aria-hidden="true">●</span>live
      </span>
    );
  return (
    <span role="status">
      <Link href={link("/system/sources")} class="mark held">
        <span aria-hidden="true">◇</span>
        {words.length > 2 ? `${words.slice(0, 2).join(", ")} and ${words.length - 2} more` : words.join(", ")}
      </Link>
    </span>
  );
}

function Theme() {
  const [dark, set] = useState(document.documentElement.dataset.theme === "dark");
  return (
    <button
      type="button"
      class="quiet"
      data-theme-switch
      onClick={() => {
        const next = dark ? "light" : "dark";
        document.documentElement.dataset.theme = next;
        localStorage.setItem("theme", next);
        set(!dark);
        window.dispatchEvent(new Event("theme"));
      }}
    >
      {dark ? "light" : "dark"}
    </button>
  );
}

function Moment() {
  const [q, change] = useQuery();
  if (!q.at) return null;
  const t = new Date(q.at);
  const step = (s: number) => change({ at: new Date(t.getTime() + s * 1000).toISOString() });
  if (Number.isNaN(t.getTime()))
    return (
      <div class="moment" role="status">
        The address has no readable moment.
        <button type="button" onClick={() => change({ at: undefined })}>
          Back to now
        </button>
      </div>
    );
  return (
    <div class="moment" role="status">
      <span>
        Every page shows <b>{t.toLocaleString()}</b>
      </span>
      <button type="button" onClick={() => step(-60)}>
        1 min earlier
      </button>
      <button type="button" onClick={() => step(60)}>
        1 min later
      </button>
      <button type="button" onClick={() => change({ at: undefined })}>
        Back to now
      </button>
    </div>
  );
}

/** To the next or previous row of a table or list: its first link, so that enter opens it. Lists that walk by themselves are left alone. */
function walk(step: number) {
  const scope = document.activeElement?.closest(".drawer") ?? document.querySelector(".main");
  if (!scope || scope.querySelector(".grid, .list.wait li")) return;
  const rows = [...scope.querySelectorAll("tbody tr, .list li, .timeline li, .first li")].filter((r) => r.querySelector("a"));
  const here = rows.findIndex((r) => r.contains(document.activeElement));
  rows[Math.max(0, Math.min(rows.length - 1, here + step))]?.querySelector("a")?.focus();
}

/** g and a letter go to a place, ? helps, Escape closes the drawer. Search and lists have their own. */
function useKeys(help: () => void) {
  const [, go] = useLocation();
  const [q, change] = useQuery();
  const begun = useRef(0); // when g was pressed: the page may be drawn again before the letter comes
  useEffect(() => {
    const press = (e: KeyboardEvent) => {
      if (e.defaultPrevented || e.metaKey || e.ctrlKey || e.altKey) return;
      if (e.key === "Escape" && q.open && !(e.target as HTMLElement).closest?.(".search")) {
        change({ open: undefined });
        return;
      }
      if ((e.target as HTMLElement).closest?.("input,select,textarea")) return;
      if (e.key === "?") help();
      else if (e.key === "j" || e.key === "k") walk(e.key === "j" ? 1 : -1);
      else if (e.key === "g") begun.current = e.timeStamp;
      else if (begun.current && e.timeStamp - begun.current < 1500) {
        const to = places.find(([, , k]) => k === e.key);
        begun.current = 0;
        if (to) {
          e.preventDefault();
          go(link(to[0]));
        }
      }
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  });
}
