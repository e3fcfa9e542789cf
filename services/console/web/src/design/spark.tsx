// A line as small as a word: how a figure came to be what it is.
export function Spark({ values, label }: { values: number[]; label: string }) {
  const [w, h] = [120, 22];
  const most = Math.max(...values, 1e-9);
  const at = (v: number, i: number) =>
    `${((w * i) / Math.max(1, values.length - 1)).toFixed(1)},${(h - 2 - ((h - 4) * v) / most).toFixed(1)}`;
  return (
    <svg class="spark" width={w} height={h} viewBox={`0 0 ${w} ${h}`} role="img" aria-label={label}>
      <title>{label}</title>
      <polyline points={values.map(at).join(" ")} />
    </svg>
  );
}
