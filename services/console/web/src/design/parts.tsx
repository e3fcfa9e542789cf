// The parts that pages are composed of.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { span, type Tone } from "../format";
import { type Answer, useNow } from "../live";

export const Sentence = ({ children, tone }: { children: ComponentChildren; tone?: Tone | undefined }) => (
  <span class={`sentence ${tone ?? ""}`} dir="auto">
    {children}
  </span>
);
/** A name from elsewhere: text, cut where it does not fit, whole on hover. */
export const Name = ({ children }: { children: string }) => (
  <bdi class="name" title={children.length > 24 ? children.slice(0, 600) : undefined}>
    {children.length > 300 ? `${children.slice(0, 300)}…` : children}
  </bdi>
);
export const Mark = ({ shape = "■", word, tone }: { shape?: string; word: string; tone: Tone }) => (
  <span class={`mark ${tone}`}>
    <span aria-hidden="true">{shape}</span>
    {word}
  </span>
);

export function Section({
  title,
  end,
  children,
  id,
}: {
  title: ComponentChildren;
  end?: ComponentChildren;
  children: ComponentChildren;
  id?: string;
}) {
  return (
    <section class="section" id={id}>
      <header>
        <h2>{title}</h2>
        {end && <span class="end">{end}</span>}
      </header>
      {children}
    </section>
  );
}

/** One number: it opens what it is made of, and has the same question for other tools beside its name. */
export const Figure = ({
  label,
  href,
  children,
  tone,
  ask,
}: {
  label: string;
  href?: string;
  children: ComponentChildren;
  tone?: Tone | undefined;
  ask?: Question | undefined;
}) => (
  <div class="figure">
    <span class="dim">
      {label}
      {ask && <Ask {...ask} of={label} />}
    </span>
    <b class={tone ?? ""}>{href ? <Link href={href}>{children}</Link> : children}</b>
  </div>
);

export type Part = { label: string; size: number; tone: Tone; text?: string; href?: string };
export function Bar({
  parts,
  total,
  legend,
  thin,
  label,
}: {
  parts: Part[];
  total?: number;
  legend?: boolean;
  thin?: boolean;
  label: string;
}) {
  const all =
    Math.max(
      total ?? 0,
      parts.reduce((n, p) => n + p.size, 0),
    ) || 1;
  const shown = parts.filter((p) => p.size > 0);
  const words = `${label}: ${shown.map((p) => `${p.label} ${p.text ?? p.size}`).join(", ") || "none"}`;
  return (
    <div>
      <div class={`bar ${thin ? "thin" : ""}`} role="img" aria-label={words} title={words}>
        {shown.map((p) => (
          <i key={p.label} class={`fill-${p.tone}`} style={{ width: `${Math.max(0.5, (100 * p.size) / all)}%` }} />
        ))}
      </div>
      {legend && (
        <div class="legend">
          {shown.map((p) => (
            <span key={p.label}>
              <i class={`fill-${p.tone}`} />
              {p.href ? (
                <Link href={p.href}>
                  {p.label} {p.text ?? p.size}
                </Link>
              ) : (
                `${p.label} ${p.text ?? p.size}`
              )}
            </span>
          ))}
        </div>
      )}
    </div>
  );
}

export type Question = { rpc?: string; body?: object; cli?: string | undefined; target?: string | undefined; prom?: string | undefined };
/** The same question for other tools: curl, where the RPC is no stream, the command line, and Prometheus, where a metric has the answer. */
export function Ask({ rpc, body = {}, cli, target, prom, of }: Question & { of?: string }) {
  const [on, set] = useState(false);
  const box = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    if (!on) return;
    const away = (e: MouseEvent | KeyboardEvent) => {
      if (e instanceof KeyboardEvent ? e.key === "Escape" : !box.current?.contains(e.target as Node)) {
        set(false);
        if (e instanceof KeyboardEvent) e.stopPropagation();
      }
    };
    document.addEventListener("mousedown", away);
    document.addEventListener("keydown", away, true);
    return () => {
      document.removeEventListener("mousedown", away);
      document.removeEventListener("keydown", away, true);
    };
  }, [on]);
  const quote = (s: string) => `'${s.replaceAll("'", `'\\''`)}'`;
  const curl = `curl -s -H 'content-type: application/json'${target ? ` -H ${quote(`bigfleet-target: ${target}`)}` : ""} -d ${quote(JSON.stringify(body, (_, v) => (typeof v === "bigint" ? String(v) : v)))} ${location.origin}/bigfleet.v1alpha1.${rpc}`;
  return (
    <span class="ask" ref={box}>
      <button
        type="button"
        class="quiet"
        aria-expanded={on}
        title={`${of ? `${of}: the` : "The"} same as curl, on the command line or in PromQL`}
        onClick={() => set(!on)}
      >
        query
      </button>
      {on && (
        <div class="pop">
          {rpc && (
            <>
              <h3>curl</h3>
              <Copy text={curl} />
            </>
          )}
          {cli && (
            <>
              <h3>Command line</h3>
              <Copy text={cli} />
            </>
          )}
          {prom && (
            <>
              <h3>PromQL</h3>
              <Copy text={prom} />
            </>
          )}
        </div>
      )}
    </span>
  );
}
export function Copy({ text }: { text: string }) {
  const [done, set] = useState(false);
  return (
    <div>
      <pre tabIndex={0}>{text}</pre>
      <button type="button" onClick={() => navigator.clipboard?.writeText(text).then(() => set(true))}>
        {done ? "Copied" : "Copy"}
      </button>
    </div>
  );
}

/** An answer in each of its states: on its way, empty, failed, old. */
export function Shown<T>({
  of,
  empty,
  children,
}: {
  of: Answer<T>;
  empty?: ((v: T) => ComponentChildren) | undefined;
  children: (v: T) => ComponentChildren;
}) {
  if (of.value === undefined)
    return of.error ? (
      <p class="note bad" role="alert">
        {of.error}
      </p>
    ) : (
      <Waiting />
    );
  const none = empty?.(of.value);
  return (
    <>
      {of.error ? (
        <p class="note warn" role="status">
          This is the last answer, <Ago at={of.at} /> old. {of.error}
        </p>
      ) : (
        <p class="age dim">
          <Aged at={of.at} />
        </p>
      )}
      {none || children(of.value)}
    </>
  );
}
const Ago = ({ at }: { at: number }) => <>{span(useNow() - at)}</>;
/** How old something is, once that is worth a word. */
export function Aged({ at, before = "" }: { at: number; before?: string }) {
  const age = useNow() - at;
  return at > 0 && age > 5000 ? (
    <>
      {before}
      {span(age)} old
    </>
  ) : null;
}
/** Nothing for 150 ms, then a line. */
export function Waiting({ what = "Reading…" }: { what?: string }) {
  const [late, set] = useState(false);
  useEffect(() => {
    const t = setTimeout(() => set(true), 150);
    return () => clearTimeout(t);
  }, []);
  return (
    <p class="wait-line" aria-busy="true">
      {late ? what : "\u00a0"}
    </p>
  );
}
export const Empty = ({ children }: { children: ComponentChildren }) => <div class="empty">{children}</div>;

export type Column<T> = { head: string; cell: (row: T) => ComponentChildren; num?: boolean; wide?: boolean };
export function Table<T>({ rows, columns, id, label }: { rows: T[]; columns: Column<T>[]; id: (r: T) => string; label: string }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((c) => (
              <th key={c.head} scope="col" class={c.num ? "num" : ""}>
                {c.head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((r) => (
            <tr key={id(r)}>
              {columns.map((c) => (
                <td key={c.head} class={c.num ? "num" : ""}>
                  {c.cell(r)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
export const Facts = ({ of }: { of: [string, ComponentChildren][] }) => (
  <dl class="facts">
    {of
      .filter(([, v]) => v !== "" && v !== undefined && v !== null && v !== false)
      .map(([k, v]) => (
        <>
          <dt key={k}>{k}</dt>
          <dd>{v}</dd>
        </>
      ))}
  </dl>
);

export type Point = { key: string; when: string; text: ComponentChildren; kind?: "end" | "bad" | "todo" | undefined };
export const Timeline = ({ events }: { events: Point[] }) => (
  <ol class="timeline">
    {events.map((e) => (
      <li key={e.key} class={e.kind ?? ""}>
        <span class="dim">{e.when}</span>
        <br />
        {e.text}
      </li>
    ))}
  </ol>
);

export function Choice({
  label,
  value,
  options,
  onChange,
}: {
  label: string;
  value: string;
  options: [string, string][];
  onChange: (v: string) => void;
}) {
  return (
    <label>
      {label}
      <select value={value} onChange={(e: JSX.TargetedEvent<HTMLSelectElement>) => onChange(e.currentTarget.value)}>
        {options.map(([v, t]) => (
          <option key={v} value={v}>
            {t}
          </option>
        ))}
      </select>
    </label>
  );
}
/** A text filter that takes effect when typing pauses. */
export function Text({
  label,
  value,
  onChange,
  width = 120,
  list,
}: {
  label: string;
  value: string;
  onChange: (v: string) => void;
  width?: number;
  list?: string[] | undefined;
}) {
  const [typed, set] = useState(value);
  const timer = useRef(0);
  useEffect(() => set(value), [value]);
  const id = `l-${label.replace(/\W/g, "-")}`;
  return (
    <label>
      {label}
      <input
        type="text"
        value={typed}
        style={{ width: `${width}px` }}
        list={list ? id : undefined}
        onInput={(e: JSX.TargetedEvent<HTMLInputElement>) => {
          const v = e.currentTarget.value;
          set(v);
          clearTimeout(timer.current);
          timer.current = window.setTimeout(() => onChange(v.trim()), 80); // a question that is not wanted any more is ended
        }}
      />
      {list && (
        <datalist id={id}>
          {list.slice(0, 200).map((x) => (
            <option key={x} value={x} />
          ))}
        </datalist>
      )}
    </label>
  );
}
