// Machines as areas on a canvas: groups side by side, in each a cell for every machine, filled by state.
import { useEffect, useRef, useState } from "preact/hooks";
import { capacityName, dollars, stateName, toneOf } from "../format";
import type { MachineRow } from "../machines";
import { tone, useTheme } from "./ink";

type CellBox = { x: number; y: number; w: number; h: number; r: MachineRow };

export function MachineMap({ rows, by, onOpen }: { rows: MachineRow[]; by: string; onOpen: (r: MachineRow) => void }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const cells = useRef<CellBox[]>([]);
  const ring = useRef<HTMLDivElement>(null);
  const [over, setOver] = useState<CellBox>();
  const [width, setWidth] = useState(0);
  const theme = useTheme();
  useEffect(() => {
    const el = canvas.current?.parentElement;
    if (!el) return;
    const fit = new ResizeObserver(() => setWidth(el.clientWidth));
    fit.observe(el);
    return () => fit.disconnect();
  }, []);
  useEffect(() => {
    const el = canvas.current;
    const g = el?.getContext("2d");
    if (!el || !g || !width) return;
    const groups = grouped(rows, by);
    const { boxes, labels, height } = layout(groups, width);
    const scale = window.devicePixelRatio || 1;
    el.width = width * scale;
    el.height = height * scale;
    el.style.height = `${height}px`;
    g.scale(scale, scale);
    g.font = "12px system-ui, sans-serif";
    const fills = new Map<string, string>();
    const fill = (name: string) => {
      if (!fills.has(name)) fills.set(name, tone(name));
      return fills.get(name) ?? "";
    };
    for (const b of boxes) {
      const t = toneOf(b.r.state);
      g.fillStyle = t === "dim" ? fill("paper-3") : fill(`${t}-fill`);
      g.fillRect(b.x, b.y, b.w, b.h);
      if (t === "short" || t === "held") {
        // colour is never alone: failed is crossed, leaving has a bar
        g.strokeStyle = fill("ink");
        g.beginPath();
        g.moveTo(b.x, b.y + b.h);
        g.lineTo(b.x + b.w, b.y);
        if (t === "short") {
          g.moveTo(b.x, b.y);
          g.lineTo(b.x + b.w, b.y + b.h);
        }
        g.stroke();
      } else if (t === "idle") {
        g.fillStyle = fill("paper");
        g.fillRect(b.x + b.w * 0.25, b.y + b.h * 0.25, b.w * 0.5, b.h * 0.5);
      } else if (t === "way") {
        g.fillStyle = fill("paper");
        g.fillRect(b.x + b.w * 0.5, b.y + 1, b.w * 0.5 - 1, b.h - 2);
      }
    }
    g.fillStyle = fill("ink");
    for (const l of labels) g.fillText(l.text, l.x, l.y);
    cells.current = boxes;
    setOver((o) => o && boxes.find((b) => b.r.id === o.r.id && b.r.shard === o.r.shard)); // where it is now
  }, [rows, by, width, theme]);
  const hit = (e: MouseEvent) => {
    const at = canvas.current?.getBoundingClientRect();
    if (!at) return undefined;
    const [x, y] = [e.clientX - at.left, e.clientY - at.top];
    return cells.current.find((c) => x >= c.x && x < c.x + c.w && y >= c.y && y < c.y + c.h);
  };
  const move = (e: KeyboardEvent) => {
    const to = e.key === "Enter" || e.key === " " ? over : stepped(cells.current, over, e.key);
    if (!to) return;
    e.preventDefault();
    if (to === over) onOpen(to.r);
    setOver(to);
  };
  useEffect(() => ring.current?.scrollIntoView({ block: "nearest" }), [over]);
  return (
    <figure class="map">
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-roledescription="map"
        aria-label={`${rows.length} machines by ${by}. Arrow keys go from machine to machine, Enter opens one; the table has them as text`}
        onKeyDown={move}
        onBlur={() => setOver(undefined)}
        onMouseMove={(e) => setOver(hit(e))}
        onMouseLeave={() => setOver(undefined)}
        onClick={(e) => {
          const c = hit(e);
          if (c) onOpen(c.r);
        }}
      />
      {over && (
        <div
          class="ring"
          ref={ring}
          style={{ left: `${over.x - 2}px`, top: `${over.y - 2}px`, width: `${over.w}px`, height: `${over.h}px` }}
        />
      )}
      <figcaption class="dim" role="status" style={{ minHeight: "20px" }}>
        {over ? described(over.r) : "Point at a machine, or go to it with the arrow keys. Click or Enter opens its life."}
      </figcaption>
    </figure>
  );
}

const described = (r: MachineRow) =>
  `${r.id} · ${stateName(r.state)} · ${r.type}, ${capacityName(r.capacity)} · ${r.zone}${r.cluster ? ` · ${r.cluster}` : ""} · ${dollars(r.price)}/h`;

/** The cell that a key leads to: beside it, or the nearest one of the line above or below. */
function stepped(cells: CellBox[], from: CellBox | undefined, key: string): CellBox | undefined {
  if (key === "Home") return cells[0];
  if (key === "End") return cells.at(-1);
  if (!key.startsWith("Arrow")) return undefined;
  if (!from) return cells[0];
  const i = cells.indexOf(from);
  if (key === "ArrowRight") return cells[i + 1] ?? from;
  if (key === "ArrowLeft") return cells[i - 1] ?? from;
  const side = key === "ArrowDown" ? 1 : -1;
  let best: CellBox | undefined;
  for (let k = i + side; cells[k] && (!best || cells[k]?.y === best.y); k += side) {
    const c = cells[k] as CellBox;
    if (c.y !== from.y && (!best || Math.abs(c.x - from.x) < Math.abs(best.x - from.x))) best = c;
  }
  return best ?? from;
}

function grouped(rows: MachineRow[], by: string): [string, MachineRow[]][] {
  const out = new Map<string, MachineRow[]>();
  for (const r of rows) {
    const k =
      by === "type"
        ? r.type
        : by === "cluster"
          ? r.cluster || "no cluster"
          : by === "capacity"
            ? capacityName(r.capacity)
            : by === "rack"
              ? `${r.provider} · ${r.zone} · ${r.rack || "no rack"}`
              : `${r.provider} · ${r.zone}`;
    const g = out.get(k);
    if (g) g.push(r);
    else out.set(k, [r]);
  }
  return [...out]
    .sort((a, b) => (a[0] < b[0] ? -1 : 1))
    .map(([k, g]) => [
      k,
      g.sort((a, b) => b.cpu - a.cpu || (a.cluster < b.cluster ? -1 : a.cluster > b.cluster ? 1 : a.id < b.id ? -1 : 1)),
    ]);
}

/** Cells of a size that fits: a cell's area grows with the machine's cpu, in steps that keep rows straight. */
function layout(groups: [string, MachineRow[]][], width: number) {
  const all = groups.reduce((n, [, g]) => n + g.length, 0);
  const base = Math.max(5, Math.min(26, Math.sqrt((width * 520) / Math.max(1, all * 1.6))));
  const least = Math.max(1, Math.min(...groups.flatMap(([, g]) => g.map((r) => r.cpu || 1))));
  const boxes: CellBox[] = [];
  const labels: { text: string; x: number; y: number }[] = [];
  let y = 0;
  for (const [name, rows] of groups) {
    labels.push({ text: `${name.slice(0, 80)}   ${rows.length}`, x: 0, y: y + 13 });
    y += 20;
    let x = 0;
    let line = 0;
    for (const r of rows) {
      const side = Math.round(base * Math.min(3, Math.sqrt((r.cpu || 1) / least)));
      if (x + side > width) {
        x = 0;
        y += line + 2;
        line = 0;
      }
      boxes.push({ x, y, w: side, h: side, r });
      x += side + 2;
      line = Math.max(line, side);
    }
    y += line + 14;
  }
  return { boxes, labels, height: Math.max(40, y) };
}
