// One order: why, what it would do, then the order. Nothing of it is drawn for who may only look.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { said } from "../api";
import { useMayOrder, useUser } from "../rights";

type Order = {
  /** The verb on the button, as "Pause". */
  verb: string;
  /** What it is about, as "cluster red". */
  about: string;
  /** Checks the order at the shard and says what it would do. */
  check: (reason: string) => Promise<ComponentChildren>;
  give: (reason: string) => Promise<ComponentChildren>;
  /** Whether there is something to order now. An order that somebody has begun stays on the page. */
  when?: boolean | undefined;
};

export function Order({ verb, about, check, give, when = true }: Order) {
  const may = useMayOrder();
  const user = useUser();
  const [step, go] = useState<"" | "why" | "sure" | "done">("");
  const [reason, say] = useState("");
  const [effect, show] = useState<ComponentChildren>();
  const [error, fail] = useState("");
  const [busy, work] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const sure = useRef<HTMLButtonElement>(null);
  const end = useRef<HTMLButtonElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useLayoutEffect(() => {
    // before the next key
    if (step === "why") field.current?.focus();
    if (step === "sure") sure.current?.focus();
    if (step === "done") end.current?.focus(); // the button that was pressed is gone, and with it the focus
  }, [step]);
  if (!may || (!when && !step)) return null;
  const close = () => {
    go("");
    fail("");
    button.current?.focus();
  };
  const run = async (what: (reason: string) => Promise<ComponentChildren>, next: "sure" | "done") => {
    work(true);
    fail("");
    try {
      show(await what(reason.trim()));
      go(next);
    } catch (e) {
      fail(said(e));
    }
    work(false);
  };
  return (
    <span
      class="ask order"
      role="group"
      aria-label={`${verb} ${about}`}
      onKeyDown={(e) => {
        if (e.key === "Escape" && step) {
          e.stopPropagation();
          close();
        }
      }}
    >
      <button
        type="button"
        ref={button}
        aria-expanded={step !== ""}
        title={`${verb} ${about}`}
        onClick={() => (step ? close() : go("why"))}
      >
        {verb}…
      </button>
      {step && (
        <form
          class="pop"
          onSubmit={(e) => {
            e.preventDefault();
            if (!busy) run(step === "why" ? check : give, step === "why" ? "sure" : "done");
          }}
        >
          <h3>
            {verb} <bdi>{about}</bdi>
          </h3>
          {step === "why" && (
            <label>
              Why
              <input ref={field} required maxLength={400} value={reason} onInput={(e) => say(e.currentTarget.value)} />
            </label>
          )}
          {step === "sure" && (
            <>
              <p role="status">{effect}</p>
              <p class="dim">
                Recorded as given by <bdi>{user}</bdi>: <bdi>{reason}</bdi>
              </p>
            </>
          )}
          {step === "done" && <p role="status">{effect}</p>}
          {error && (
            <p class="note bad" role="alert">
              {error}
            </p>
          )}
          <span class="filters">
            {step === "why" && (
              <button type="submit" disabled={busy || !reason.trim()}>
                See what it does
              </button>
            )}
            {step === "sure" && (
              <button type="submit" ref={sure} disabled={busy}>
                {verb} now
              </button>
            )}
            <button type="button" ref={end} class="quiet" onClick={close}>
              {step === "done" ? "Close" : "Cancel"}
            </button>
          </span>
        </form>
      )}
    </span>
  );
}
