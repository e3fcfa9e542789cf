// What stays current: streams that mend themselves, and answers that are asked again when their inputs change.
import { useEffect, useRef, useState } from "preact/hooks";
import { said } from "./api";

export type Flow<T> = { value: T | undefined; at: number; lost: string; since: number };

/**
 * Follows a stream while the page is visible. A stream that breaks is opened again, after half a second, then more, at most five.
 * `keep` shows the old value until the first message of another stream. Hidden pages hold none: a browser has six connections to a server that speaks HTTP/1.1.
 */
export function useFlow<M, T>(begin: () => T, open: ((signal: AbortSignal) => AsyncIterable<M>) | undefined, fold: (state: T, message: M) => T, deps: unknown[], keep = false): Flow<T> {
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
      try {
        for await (const message of open(mine.signal)) {
          wait = 500;
          state = fold(state, message);
          const value = state;
          set((f) => ({ value, at: Date.now(), lost: "", since: f.since }));
        }
        throw new Error("The stream ended.");
      } catch (e) {
        if (mine.signal.aborted) return;
        set((f) => ({ ...f, lost: said(e) }));
        timer = window.setTimeout(run, wait);
        wait = Math.min(wait * 2, 5000);
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

export type Answer<T> = { value: T | undefined; error: string; loading: boolean };

/** Asks once for these inputs, and again after `every` milliseconds while the page is visible. The old answer stays until the new one is there. */
export function useAnswer<T>(ask: ((signal: AbortSignal) => Promise<T>) | undefined, deps: unknown[], every = 0): Answer<T> {
  const [answer, set] = useState<Answer<T>>({ value: undefined, error: "", loading: true });
  const key = useRef("");
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    const now = JSON.stringify(deps, (_, v) => (typeof v === "bigint" ? String(v) : v));
    if (key.current !== now) set((a) => ({ value: a.value, error: "", loading: true }));
    key.current = now;
    const run = async () => {
      if (!ask) {
        set({ value: undefined, error: "", loading: false });
        return;
      }
      if (!document.hidden) {
        try {
          const value = await ask(stop.signal);
          if (!stop.signal.aborted) set({ value, error: "", loading: false });
        } catch (e) {
          if (stop.signal.aborted) return;
          set((a) => ({ value: a.value, error: said(e), loading: false }));
        }
      }
      if (every && !stop.signal.aborted) timer = window.setTimeout(run, every);
    };
    run();
    return () => {
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
