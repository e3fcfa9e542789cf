// What stays current: streams that mend themselves, and answers that are asked again when their inputs change.
import { useEffect, useRef, useState } from "preact/hooks";
import { ageOf, said } from "./api";

export type Flow<T> = { value: T | undefined; at: number; lost: string; since: number };

/** A console says something at least every five seconds. A connection that brings nothing for so long is dead, though neither side closed it. */
const silence = 15_000;

/**
 * Follows a stream while the page is visible. A stream that breaks is opened again, after half a second, then more, at most five.
 * `keep` shows the old value until the first message of another stream. Hidden pages hold none: a browser has six connections to a server that speaks HTTP/1.1.
 */
export function useFlow<M, T>(
  begin: () => T,
  open: ((signal: AbortSignal) => AsyncIterable<M>) | undefined,
  fold: (state: T, message: M) => T,
  deps: unknown[],
  keep = false,
): Flow<T> {
  const [flow, set] = useState<Flow<T>>({ value: undefined, at: 0, lost: "", since: Date.now() });
  useEffect(() => {
    let stop = new AbortController();
    let timer = 0;
    let wait = 500;
    set((f) => (keep ? f : { value: undefined, at: 0, lost: "", since: Date.now() }));
    const run = async () => {
      if (!open || document.hidden) return;
      const mine = new AbortController();
      stop = mine;
      let state = begin();
      let silent = false;
      let watch = 0;
      const heard = () => {
        clearTimeout(watch);
        watch = window.setTimeout(() => {
          silent = true;
          mine.abort();
        }, silence);
      };
      heard();
      try {
        for await (const message of open(mine.signal)) {
          heard();
          wait = 500;
          state = fold(state, message);
          const value = state;
          set((f) => ({ value, at: Date.now(), lost: "", since: f.since }));
        }
        throw new Error("The stream ended.");
      } catch (e) {
        if (mine.signal.aborted && !silent) return;
        set((f) => ({ ...f, lost: silent ? `Nothing was heard for ${silence / 1000} s.` : said(e) }));
        timer = window.setTimeout(run, wait);
        wait = Math.min(wait * 2, 5000);
      } finally {
        clearTimeout(watch);
      }
    };
    const seen = () => {
      stop.abort();
      clearTimeout(timer);
      if (!document.hidden) run();
    };
    document.addEventListener("visibilitychange", seen);
    run();
    return () => {
      document.removeEventListener("visibilitychange", seen);
      stop.abort();
      clearTimeout(timer);
    };
  }, deps);
  return flow;
}

/** `at` is when the value was true, by this browser's clock; 0 without one. */
export type Answer<T> = { value: T | undefined; at: number; error: string; loading: boolean };

/** Asks once for these inputs, and again after `every` milliseconds while the page is visible. The old answer stays until the new one is there. */
export function useAnswer<T>(ask: ((signal: AbortSignal) => Promise<T>) | undefined, deps: unknown[], every = 0): Answer<T> {
  const [answer, set] = useState<Answer<T>>({ value: undefined, at: 0, error: "", loading: true });
  const key = useRef("");
  useEffect(() => {
    let stop = new AbortController();
    let left = false;
    let timer = 0;
    const now = JSON.stringify(deps, (_, v) => (typeof v === "bigint" ? String(v) : v));
    if (key.current !== now) set((a) => ({ ...a, error: "", loading: true }));
    key.current = now;
    const run = async () => {
      if (!ask) {
        set({ value: undefined, at: 0, error: "", loading: false });
        return;
      }
      if (!document.hidden) {
        stop = new AbortController();
        const began = Date.now();
        try {
          const value = await ask(stop.signal);
          if (left) return;
          set({ value, at: began - ageOf(stop.signal), error: "", loading: false });
        } catch (e) {
          if (left) return;
          set((a) => ({ ...a, error: said(e), loading: false }));
        }
      }
      if (every) timer = window.setTimeout(run, every);
    };
    run();
    return () => {
      left = true;
      stop.abort();
      clearTimeout(timer);
    };
  }, [...deps, every]);
  return answer;
}

/** The time, once a second, so that ages grow on the page. */
export function useNow(every = 1000): number {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    const t = setInterval(() => set(Date.now()), every);
    return () => clearInterval(t);
  }, [every]);
  return now;
}

/** Waits until typing has paused. */
export function useSettled<T>(v: T, wait = 120): T {
  const [out, set] = useState(v);
  useEffect(() => {
    const t = setTimeout(() => set(v), wait);
    return () => clearTimeout(t);
  }, [v, wait]);
  return out;
}
