// Time on the horizontal axis, stacked areas or lines above it. uPlot draws.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clock } from "../format";
import { seriesTone, stack, tone, useTheme } from "./ink";

export type Series = { label: string; values: (number | null)[]; tone?: string };

export function Chart({
  times,
  series,
  stacked,
  height = 180,
  format,
  onPick,
  label,
}: {
  times: number[];
  series: Series[];
  stacked?: boolean;
  height?: number;
  format: (n: number) => string;
  onPick?: (fromSeconds: number, toSeconds: number) => void;
  label: string;
}) {
  const box = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  const key = JSON.stringify([series.map((s) => [s.label, s.tone]), stacked, height, theme]);
  const plot = useRef<uPlot>();
  const pick = useRef(onPick);
  pick.current = onPick;
  const [at, point] = useState<number>(); // under the pointer
  const data = useMemo(
    () => [times, ...(stacked ? stack(series.map((s) => s.values)) : series.map((s) => s.values))] as uPlot.AlignedData,
    [times, series, stacked],
  );
  useEffect(() => {
    const el = box.current;
    if (!el) return;
    const line = tone("line");
    const axis = {
      stroke: tone("ink-2"),
      grid: { stroke: line, width: 1 },
      ticks: { stroke: line, width: 1 },
      font: "11px system-ui, sans-serif",
    };
    const chart = new uPlot(
      {
        width: Math.max(el.clientWidth, 200),
        height,
        legend: { show: false },
        cursor: { drag: { x: !!onPick, y: false, setScale: false } },
        scales: { y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.08 : 1] } },
        axes: [
          { ...axis, size: 26, space: 72, incrs: steps, values: (_u, ts) => ts.map((t) => hour(t, (ts[1] ?? 0) - (ts[0] ?? 0))) },
          { ...axis, size: chartLeft, values: (_u, vs) => vs.map((v) => format(v)) },
        ],
        padding: [8, chartRight, 0, 0],
        series: [
          {},
          ...series.map((s, i) => ({
            stroke: tone(s.tone ?? `s${i}`),
            width: 1,
            points: { show: false },
            ...(stacked ? { fill: tone(`${s.tone ?? `s${i}`}-fill`) } : {}),
          })),
        ],
        hooks: {
          setCursor: [(u) => point(u.cursor.idx ?? undefined)],
          setSelect: [
            (u) => {
              if (u.select.width > 2) pick.current?.(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
              u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            },
          ],
        },
      },
      data,
      el,
    );
    plot.current = chart;
    const fit = new ResizeObserver(() => chart.setSize({ width: Math.max(el.clientWidth, 200), height }));
    fit.observe(el);
    return () => {
      fit.disconnect();
      chart.destroy();
      plot.current = undefined;
    };
  }, [key]);
  useEffect(() => plot.current?.setData(data), [data]);
  return (
    <figure>
      <div class="chart" ref={box} role="img" aria-label={label} />
      <figcaption class="legend">
        {series.map((s, i) => (
          <span key={s.label}>
            <i class={`fill-${s.tone ?? seriesTone(i)}`} />
            <bdi>{s.label.length > 40 ? `${s.label.slice(0, 40)}…` : s.label}</bdi>
            {at !== undefined && ` ${format(s.values[at] ?? 0)}`}
          </span>
        ))}
        {at !== undefined && times[at] !== undefined && <span>{clock(BigInt(Math.round(times[at] * 1000)) * 1_000_000n)}</span>}
      </figcaption>
    </figure>
  );
}
/** Pixels left and right of the plot: what stands below it in the same time is indented as much. */
export const chartLeft = 64;
export const chartRight = 12;
/** Seconds between two marks of the time axis. */
const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
function hour(t: number, step: number): string {
  const d = new Date(t * 1000);
  const two = (n: number) => String(n).padStart(2, "0");
  return `${two(d.getHours())}:${two(d.getMinutes())}${step > 0 && step < 60 ? `:${two(d.getSeconds())}` : ""}`;
}
