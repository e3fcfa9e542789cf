// Tokens for canvases, which cannot read a stylesheet.
import { useEffect, useState } from "preact/hooks";

const series = ["met", "way", "held", "idle", "money", "short"];
/** The token of the i-th of several series. */
export const seriesTone = (i: number) => series[i % series.length] as string;

/** The present theme: what is drawn on a canvas is drawn again when it changes. */
export function useTheme(): string {
  const present = () => document.documentElement.dataset.theme ?? "";
  const [theme, set] = useState(present());
  useEffect(() => {
    const changed = () => set(present());
    window.addEventListener("theme", changed);
    return () => window.removeEventListener("theme", changed);
  }, []);
  return theme;
}
/** A token's colour in the present theme; s0, s1, … are colours for series. */
export function tone(name: string): string {
  const m = /^s(\d+)(-fill)?$/.exec(name);
  const token = m ? `${seriesTone(Number(m[1]))}${m[2] ?? ""}` : name;
  return getComputedStyle(document.documentElement).getPropertyValue(`--${token}`).trim() || "#888";
}
/** Values on top of each other: each series holds the sum of itself and of those after it, so that the first is drawn behind all. */
export function stack(values: (number | null)[][]): number[][] {
  const n = values[0]?.length ?? 0;
  const out = values.map(() => new Array<number>(n).fill(0));
  for (let i = 0; i < n; i++) {
    let sum = 0;
    for (let s = values.length - 1; s >= 0; s--) {
      sum += values[s]?.[i] ?? 0;
      (out[s] as number[])[i] = sum;
    }
  }
  return out;
}
