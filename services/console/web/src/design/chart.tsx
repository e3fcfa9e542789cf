// Time on the horizontal axis, stacked areas or lines above it. uPlot draws.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { stack, tone } from "./ink";

export type Series = { label: string; values: (number | null)[]; tone?: string };

export function Chart({ times, series, stacked, height = 180, format, onPick, label }: { times: number[]; series: Series[]; stacked?: boolean; height?: number; format: (n: number) => string; onPick?: (fromSeconds: number, toSeconds: number) => void; label: string }) {
  const box = useRef<HTMLDivElement>(null);
  const key = JSON.stringify([series.map((s) => s.label), stacked, height, document.documentElement.dataset.theme]);
  const plot = useRef<uPlot>();
  const pick = useRef(onPick);
  pick.current = onPick;
  const raw = useRef(series);
  raw.current = series;
  const data = [times, ...(stacked ? stack(series.map((s) => s.values)) : series.map((s) => s.values))] as uPlot.AlignedData;
  useEffect(() => {
    const el = box.current;
    if (!el) return;
    const line = tone("line");
    const axis = { stroke: tone("ink-2"), grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "11px system-ui, sans-serif" };
    const chart = new uPlot({
      width: Math.max(el.clientWidth, 200), height, legend: { live: true }, cursor: { drag: { x: !!onPick, y: false, setScale: false } },
      scales: { y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.08 : 1] } },
      axes: [axis, { ...axis, size: 64, values: (_u, vs) => vs.map((v) => format(v)) }],
      series: [{ label: "time" }, ...series.map((s, i) => ({
        label: s.label.length > 40 ? `${s.label.slice(0, 40)}…` : s.label, stroke: tone(s.tone ?? `s${i}`), width: 1.5, points: { show: false },
        ...(stacked ? { fill: tone(`${s.tone ?? `s${i}`}-fill`) } : {}),
        value: (_u: uPlot, _v: number, _si: number, idx: number | null) => (idx === null ? "" : format(raw.current[i]?.values[idx] ?? 0)),
      }))],
      hooks: { setSelect: [(u) => {
        if (u.select.width > 2) pick.current?.(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
        u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      }] },
    }, data, el);
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
  return <div class="chart" ref={box} role="img" aria-label={label} />;
}
