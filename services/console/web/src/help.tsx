import { useEffect, useRef } from "preact/hooks";

const keys: [string, string][] = [
  ["/", "search anything by name"],
  ["g n", "Now: is anything wrong?"],
  ["g d", "Demand: who wants what, and who gets it?"],
  ["g f", "Fleet: what do we have?"],
  ["g m", "Money: where does it go?"],
  ["g h", "History: what happened, and why?"],
  ["g s", "System"],
  ["j k", "next and previous row"],
  ["enter", "open it"],
  ["esc", "close the drawer"],
  ["?", "these keys"],
];
export function Help({ close }: { close: () => void }) {
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    button.current?.focus();
    const esc = (e: KeyboardEvent) => {
      if (e.key === "Escape") {
        e.preventDefault();
        close();
      }
    };
    document.addEventListener("keydown", esc, true);
    return () => document.removeEventListener("keydown", esc, true);
  }, []);
  return (
    <div class="veil" onClick={close}>
      <div role="dialog" aria-modal="true" aria-label="Keys" onClick={(e) => e.stopPropagation()}>
        <h1>Keys</h1>
        <table>
          <tbody>
            {keys.map(([k, w]) => (
              <tr key={k}>
                <td>
                  <kbd class="mono">{k}</kbd>
                </td>
                <td>{w}</td>
              </tr>
            ))}
          </tbody>
        </table>
        <p>
          <button type="button" ref={button} onClick={close}>
            Close
          </button>
        </p>
      </div>
    </div>
  );
}
